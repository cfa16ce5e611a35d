"""Prefix caching: whatever is shared, every block holds what its readers take it for, under every policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from acting import EVERY, POLICIES, SAFE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prefix_loads import shared_loads
from servers import Served, SmallBackend, serve
from small_loads import Load, loads, resolved
from test_fast_path import assert_paths_agree, assert_same, told
from test_invariants import (
    MAY_STALL,
    assert_everybody_can_leave,
    assert_everybody_has_an_end,
    assert_iterations_follow_one_another,
    assert_parts_sum_to_the_ttft,
    assert_times_are_in_order,
)

from sim import Scenario, run

SHARED = Path(__file__).parent.parent / "scenarios/shared_prefix.yaml"
RANDOM = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # a failure is not made smaller, which takes minutes
)
every_policy = pytest.mark.parametrize("policy", EVERY)


def served(load: Load, policy: str, fast_path: bool = True, fails: frozenset[tuple[str, str]] = frozenset()) -> Served:
    load = resolved(load, policy)
    backend = SmallBackend(prefill_token=7_001, encode_token=13_003, fails=fails)
    return serve(load.requests, policy, load.limits, cancels=load.cancels, backend=backend, fast_path=fast_path)


@every_policy
@RANDOM
@given(load=shared_loads() | loads(enable_prefix_caching=True), fails=st.sets(st.just(("image", "k0"))))
def test_every_rule_holds_in_every_run_and_paths_agree(policy: str, load: Load, fails: set[tuple[str, str]]) -> None:
    """`CheckedState` follows references, reservations and hits, and what is in every block."""
    quick, slow = (served(load, policy, fast_path, frozenset(fails)) for fast_path in (True, False))
    assert_same(quick, slow)
    assert_everybody_has_an_end(quick, load)
    assert_times_are_in_order(quick)
    assert_parts_sum_to_the_ttft(quick)
    assert_iterations_follow_one_another(quick)
    assert_everybody_can_leave(quick)


@pytest.mark.parametrize("policy", ["unbudgeted", "sglang", "hf_rows, inputs kept", *SAFE])
@RANDOM
@given(load=shared_loads(cancelled=False))
def test_no_livelock_and_no_stall_where_there_is_no_reason_for_one(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}


@pytest.mark.parametrize("policy", [name for name in EVERY if name not in MAY_STALL])
@settings(RANDOM, max_examples=15)
@given(load=shared_loads(cancelled=False, capacity="max_utilization", encoder_cache_rows=100))
def test_preemption_alone_stalls_nobody(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}


def tight(policy: str, capacity: str, seed: int = 1) -> Scenario:
    """The shipped scenario with fewer requests and blocks: prefixes are evicted, and computed again."""
    changes = {
        "seed": seed,
        "policy.kind": policy,
        "workload.num_requests": 40,
        "workload.shared_prefix": {"prefix_len": 300, "num_prefixes": 3},
        "workload.images.size": "256x256",
        "engine.capacity": capacity,
        "engine.num_kv_blocks": 75,
    }
    return Scenario.load(SHARED, changes)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", ["no_evict", "max_utilization"])
def test_paths_agree_on_scenarios(policy: str, capacity: str) -> None:
    quick = assert_paths_agree(tight(policy, capacity))
    assert 0.1 < quick.summary["prefix_cache_hit_rate"] < 0.9


@pytest.mark.parametrize("policy", POLICIES)
def test_same_seed_same_bytes_and_another_seed_others(policy: str) -> None:
    one, again, other = (run(tight(policy, "no_evict", seed)) for seed in (7, 7, 8))
    assert told(one) == told(again) and one.decisions == again.decisions and one.summary == again.summary
    assert told(one)[1] != told(other)[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_mooncake_trace_finds_what_its_hash_ids_say(policy: str, tmp_path: Path) -> None:
    """Blocks of 16 tokens out of those of 512: all of a shorter prompt's but its last, two of three, and none."""
    rows = [(1100, [4, 5, 6]), (1400, [4, 5, 6]), (1400, [4, 5, 7]), (1100, [3, 5, 6])]
    lines = [
        f'{{"timestamp": {20_000 * n}, "input_length": {length}, "output_length": 9, "hash_ids": {hashes}}}'
        for n, (length, hashes) in enumerate(rows)
    ]
    (tmp_path / "trace").write_text("\n".join(lines))
    changes = {"workload": {"kind": "mooncake", "path": str(tmp_path / "trace")}, "policy.kind": policy}
    ran = run(SHARED, changes)
    assert ran.requests["num_cached_tokens"].tolist() == [0, 1100 // 16 * 16, 1024, 0]
    assert run(SHARED, changes | {"engine.enable_prefix_caching": False}).summary["total_cached_tokens"] == 0
