"""Prefix caching: whatever is shared, every block holds what its readers take it for, under every policy."""

from __future__ import annotations

import pytest
from acting import EVERY, SAFE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prefix_loads import shared_loads
from servers import Served, SmallBackend, serve
from small_loads import Load, loads, resolved
from test_fast_path import assert_same
from test_invariants import (
    MAY_STALL,
    assert_everybody_can_leave,
    assert_everybody_has_an_end,
    assert_iterations_follow_one_another,
    assert_parts_sum_to_the_ttft,
    assert_times_are_in_order,
)

RANDOM = settings(
    max_examples=50,
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
@given(
    load=shared_loads() | loads(enable_prefix_caching=True),
    fast_path=st.booleans(),
    fails=st.sets(st.just(("image", "k0"))),
)
def test_every_rule_holds_in_every_run(policy: str, load: Load, fast_path: bool, fails: set[tuple[str, str]]) -> None:
    """`CheckedState` follows references, reservations and hits, and what is in every block."""
    run = served(load, policy, fast_path, frozenset(fails))
    assert_everybody_has_an_end(run, load)
    assert_times_are_in_order(run)
    assert_parts_sum_to_the_ttft(run)
    assert_iterations_follow_one_another(run)
    assert_everybody_can_leave(run)


@every_policy
@RANDOM
@given(load=shared_loads())
def test_paths_agree(policy: str, load: Load) -> None:
    quick, slow = (served(load, policy, fast_path) for fast_path in (True, False))
    assert_same(quick, slow)


@pytest.mark.parametrize("policy", ["unbudgeted", "sglang", "hf_rows, inputs kept", *SAFE])
@RANDOM
@given(load=shared_loads(cancelled=False))
def test_no_livelock_and_no_stall_where_there_is_no_reason_for_one(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}


@pytest.mark.parametrize("policy", [name for name in EVERY if name not in MAY_STALL])
@settings(RANDOM, max_examples=25)
@given(load=shared_loads(cancelled=False, capacity="max_utilization", encoder_cache_rows=100))
def test_preemption_alone_stalls_nobody(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}
