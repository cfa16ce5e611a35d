"""Prefix caching where requests go from engine to engine, and beside an encoder on a stream of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import APART, SAFE, acting
from checks import assert_clean, checked_type
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pool_servers import MODEL, Shape, serve_pools
from prefix_loads import CACHED, alike, shared_loads
from rules import MS, Sized, limits, request
from small_loads import Load
from test_fast_path import assert_same
from test_invariants import assert_everybody_can_leave, assert_parts_sum_to_the_ttft, assert_times_are_in_order
from test_pools import served as in_pools
from test_pools import shapes
from test_side_stream import small, streamed

from policies.prefix_builder import CachingBuilder
from policies.prefix_state import CachingEncodedState, CachingPrefillState
from policies.request_state import RequestState
from sim import Scenario, run
from workloads.errors import InputError

ROOT = Path(__file__).parent.parent
RANDOM = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # a failure is not made smaller, which takes minutes
)
every_policy = pytest.mark.parametrize("policy", APART)


@every_policy
@RANDOM
@given(load=shared_loads(), ahead=st.integers(1, 3), factor=st.floats(1, 3))
def test_beside_a_side_stream(policy: str, load: Load, ahead: int, factor: float) -> None:
    load = streamed(load, policy, ahead, factor)
    quick, slow = (small(load, policy, fast_path) for fast_path in (True, False))
    assert_same(quick, slow)
    assert_times_are_in_order(slow)
    assert_parts_sum_to_the_ttft(slow)
    assert_everybody_can_leave(slow)


@every_policy
@RANDOM
@given(load=shared_loads(), shape=shapes(), encode_token=st.sampled_from([13_003, 100_000, 0]))
def test_in_pools(policy: str, load: Load, shape: Shape, encode_token: int) -> None:
    """`serve_pools` follows blocks, references and what is in them from draft to draft."""
    quick, slow = (in_pools(load, policy, shape, fast_path, encode_token) for fast_path in (True, False))
    assert_same(quick.tables, slow.tables)
    assert_times_are_in_order(slow)
    assert_parts_sum_to_the_ttft(slow)
    if slow.verdict == "finished":
        for engine in slow.cluster.engines:
            assert_clean(engine.state)


@pytest.mark.parametrize("policy", ["unbudgeted", *(name for name in SAFE if name in APART)])
@RANDOM
@given(load=shared_loads(cancelled=False), shape=shapes())
def test_no_stall_in_pools_where_there_is_no_reason_for_one(policy: str, load: Load, shape: Shape) -> None:
    assert set(in_pools(load, policy, shape).status.values()) == {"finished"}


def test_a_prefill_engine_shares_what_it_is_sending() -> None:
    """8 of 9 blocks are shared while the first request's are on the link; both send 9; all of them are given back."""
    asked = (alike(0, output=4), alike(1, output=4)._replace(arrival=2 * MS), alike(2)._replace(arrival=900 * MS))
    tight = limits(**CACHED, num_kv_blocks=12)
    bandwidth = 9 * MODEL.kv_bytes_per_token / 1e9 / 0.05  # 50 ms for a prompt
    shape = Shape(encode=0, decode=1, gigabytes_per_second=bandwidth, limits={"decode": limits(block_size=1)})
    ran = serve_pools(Load(asked, tight, {}), "fcfs", shape)
    assert ran.table["status"].eq("finished").all() and ran.table["num_cached_tokens"].tolist() == [0, 8, 8]
    assert ran.table.loc[1, "first_token"] < 0.05 and ran.cluster.sent_kv_bytes == 18 * MODEL.kv_bytes_per_token
    sender = ran.cluster.engines[0].state
    assert isinstance(sender, CachingPrefillState)
    assert_clean(sender)
    assert len(sender.prefixes.pool.blocks) == 8 and not any(sender.prefixes.pool.refs)


def test_items_that_were_sent_are_kept_should_their_hit_be_lost() -> None:
    state = checked_type(CachingEncodedState)(limits(**CACHED, num_kv_blocks=20))
    assert isinstance(state, CachingEncodedState)
    first, second = (RequestState(request(id, [Sized(1, 3, "a")])) for id in range(2))
    for arriving in (first, second):
        state.reserve(arriving)  # type: ignore[attr-defined]
        state.receive(arriving)
        if arriving is first:
            state.submit(first)
            builder = CachingBuilder(state, 0)
            acting("fcfs").schedule(builder)
            state.begin(builder.plan)
            state.complete(builder.plan)
    state.submit(second)
    assert first.num_generated == 1 and second.num_computed_tokens == 3 and second.next_item == 1
    assert {*second.holds} == {0}
    state.pool.give(state.pool.take(20))
    state.prefixes.refresh()
    assert second.num_computed_tokens == second.next_item == 0 and second.holds[0].ready and not second.missing()


POOLS: dict[str, Any] = {"link": {"gigabytes_per_second": 50}, "prefill": {"engines": 2}, "decode": {}}


def test_of_several_engines_those_that_prefill_have_a_cache() -> None:
    """As the scenario says for all engines, or for the prefill engines alone; and once resolved, it stays so."""
    few = {"workload.num_requests": 40, "pools": POOLS}
    ran = run(ROOT / "scenarios/shared_prefix.yaml", few)
    own = {"engine.enable_prefix_caching": False, "pools.prefill.engine": {"enable_prefix_caching": True}}
    assert ran.summary["prefix_cache_hit_rate"] > 0.5
    assert run(ROOT / "scenarios/shared_prefix.yaml", few | own).decisions == ran.decisions
    pools = ran.scenario.pools
    assert pools is not None and pools.prefill.engine is not None and pools.decode is not None
    assert pools.prefill.engine.enable_prefix_caching
    assert pools.decode.engine is not None and not pools.decode.engine.enable_prefix_caching
    assert run(ran.scenario).decisions == ran.decisions


@pytest.mark.parametrize("kind", ["encode", "decode"])
def test_engines_that_compute_no_prompt_have_none(kind: str) -> None:
    pools = POOLS | {kind: {"engine": {"enable_prefix_caching": True}}}
    asked = Scenario.load(ROOT / "scenarios/shared_prefix.yaml", {"workload.num_requests": 5, "pools": pools})
    with pytest.raises(InputError, match=f"^pools.{kind}.engine.enable_prefix_caching: only prefill engines"):
        run(asked)
