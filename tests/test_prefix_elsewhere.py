"""Prefix caching where requests go from engine to engine, and beside an encoder on a stream of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import APART, SAFE
from checks import assert_clean
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pool_servers import Pooled, Shape, serve_pools
from prefix_loads import shared_loads
from rules import MS, Sized, limits, request
from small_loads import Load
from test_fast_path import assert_same
from test_invariants import assert_everybody_can_leave, assert_parts_sum_to_the_ttft, assert_times_are_in_order
from test_pools import served as in_pools
from test_pools import shapes
from test_side_stream import small, streamed

from sim import Scenario, run
from workloads.errors import InputError
from workloads.request import Request

ROOT = Path(__file__).parent.parent
RANDOM = settings(
    max_examples=40,
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
