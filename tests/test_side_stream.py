"""The encoder on a side stream: overlap to the nanosecond, the same policies, and every rule as without one."""

from __future__ import annotations

from typing import Any

import pytest
from acting import APART
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import MS, Sized, limits, request
from servers import Served, SmallBackend, serve
from small_loads import Load, loads, resolved
from test_fast_path import assert_paths_agree, assert_same
from test_invariants import (
    assert_answers_are_whole,
    assert_everybody_can_leave,
    assert_everybody_has_an_end,
    assert_parts_sum_to_the_ttft,
    assert_times_are_in_order,
)

from policies.limits import Interference
from sim import Run, Scenario, run
from sim.attribution import blame, stall_attribution
from sim.side_stream import SideStream
from workloads.errors import InputError

RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
every_policy = pytest.mark.parametrize("policy", APART)


def streamed(load: Load, policy: str, ahead: int, factor: float) -> Load:
    load = resolved(load, policy)
    shared = Interference(factor=factor, source="a test")
    stream = {"encoder_side_stream_max_ahead": ahead, "encoder_side_stream_interference": shared}
    return load._replace(limits=load.limits.model_copy(update=stream))


def small(load: Load, policy: str, fast_path: bool = True, fails: frozenset[tuple[str, str]] = frozenset()) -> Served:
    backend = SmallBackend(prefill_token=7_001, encode_token=313_003, fails=fails)
    return serve(load.requests, policy, load.limits, cancels=load.cancels, backend=backend, fast_path=fast_path)


@every_policy
@RANDOM
@given(
    load=loads(),
    ahead=st.integers(1, 3),
    factor=st.floats(1, 3),
    fast_path=st.booleans(),
    fails=st.sets(st.just(("image", "k0"))),
)
def test_every_rule_holds_in_every_run(
    policy: str, load: Load, ahead: int, factor: float, fast_path: bool, fails: set[tuple[str, str]]
) -> None:
    load = streamed(load, policy, ahead, factor)
    run = small(load, policy, fast_path, frozenset(fails))
    assert_everybody_has_an_end(run, load)
    assert_answers_are_whole(run)
    assert_times_are_in_order(run)
    assert_parts_sum_to_the_ttft(run)
    assert_everybody_can_leave(run)


@every_policy
@RANDOM
@given(load=loads(), ahead=st.integers(1, 3), factor=st.floats(1, 3))
def test_paths_agree_on_random_small_loads(policy: str, load: Load, ahead: int, factor: float) -> None:
    load = streamed(load, policy, ahead, factor)
    assert_same(small(load, policy, True), small(load, policy, False))


SIDE = {"encoder_side_stream_max_ahead": 2}


@pytest.mark.parametrize("policy", ["unbudgeted", "head_of_line", "footprint"])
def test_paths_agree_on_scenarios(policy: str) -> None:
    from test_fast_path import scenario

    assert_paths_agree(scenario(policy, "gamma", engine=SIDE))
    assert_paths_agree(scenario(policy, "closed", engine=SIDE | {"capacity": "max_utilization"}))


def one_beside_another(factor: float) -> Served:
    """0 decodes 40 tokens at 1 ms each; from 10 ms on 1 has an item of 6 ms, 5 tokens of prompt and one of answer."""
    asked = [request(0, output=40), request(1, [Sized(2, 3)], text=2, arrival=10 * MS)]
    shared = Interference(factor=factor, source="a test")
    server = limits(encoder_side_stream_max_ahead=1, encoder_side_stream_interference=shared)
    return serve(asked, "fcfs", server, backend=SmallBackend(encode_token=3 * MS))


def test_decodes_go_on_slowed_while_an_item_is_encoded() -> None:
    """0.1 ms of the host, which nobody slows, and 0.9 ms on the device, twice as long beside the encoder."""
    table = one_beside_another(2.0).iterations
    slowed = table[table["encode"] > 0]
    assert (slowed["num_decodes"] == 1).all()
    assert slowed["compute"].round(9).eq(0.0009).all()
    assert table["end"].sub(table["start"]).sub(table[["encode", "compute", "host"]].sum(axis=1)).abs().max() < 1e-12
    # launched 0.1 ms into the iteration at 10 ms: of its 6 ms, 6 x 0.9 beside 1.8 ms each, and 0.1 in each host time
    assert len(slowed) == 6 and slowed["encode"].round(9).eq(0.0009).sum() == 6
    first = table[table["num_prefill_tokens"] == 5].iloc[0]
    assert round(first["start"], 9) == round(0.010 + 6 * 0.0019 + 0.001, 9)


def test_without_interference_the_encoder_costs_the_decodes_nothing() -> None:
    alone = serve([request(0, output=40)], "fcfs", limits()).table
    beside = one_beside_another(1.0)
    assert beside.iterations["encode"].eq(0).all()
    assert beside.table.loc[0, "finish"] == alone.loc[0, "finish"]
    assert round(beside.table.loc[1, "encode"], 9) == 0.0061  # from the launching iteration's start to its being done


def test_a_waiting_engine_wakes_when_an_item_is_done() -> None:
    server = limits(encoder_side_stream_max_ahead=1)
    run = serve([request(0, [Sized(2, 3)])], "fcfs", server, backend=SmallBackend(encode_token=3 * MS))
    launch, prefill = run.iterations.to_dict("records")
    assert (launch["num_items"], round(launch["end"], 9)) == (1, 0.00145)  # this backend computes even for nobody
    assert round(prefill["start"], 9) == 0.00655


def test_as_many_batches_as_asked_for_are_in_flight() -> None:
    """Items of 20 ms, an iteration encodes one: with two ahead, the third is launched when the first is done."""
    server = limits(encoder_side_stream_max_ahead=2, encoder_max_num_items=1)
    asked = [request(id, [Sized(10, 1)]) for id in range(4)]
    run = serve([*asked, request(4, output=200)], "fcfs", server, backend=SmallBackend(encode_token=2 * MS))
    launches = run.iterations[run.iterations["num_items"] > 0]["start"].tolist()
    assert launches[1] < 0.01 < 0.02 < launches[2]
    assert run.table.loc[3, "encoder_budget_wait"] > 0.02


def test_work_is_conserved() -> None:
    """At twice the time each, sharing gains nothing: what is done in total is what taking turns would have done."""
    stream = SideStream(2.0)
    elapsed, landings = stream.beside(0, 0, 700, 400)
    assert (elapsed, landings) == (400 * 2 + 300, [800])
    elapsed, landings = stream.beside(2000, 50, 700, 900)
    assert (elapsed, landings) == (1400, [])
    assert stream.alone(3450, 200) == [200]
    assert stream.spans == [(0, 800), (2050, 3650)]


def simulated(**engine: Any) -> Run:
    content = {
        "seed": 1,
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": "head_of_line"},
        "workload": {
            "kind": "synthetic",
            "num_requests": 60,
            "arrivals": {"kind": "poisson", "rate": 5},
            "text_tokens": 200,
            "output_tokens": 100,
            "images": {"count": {"kind": "uniform", "min": 0, "max": 3}, "size": "1024x1024"},
        },
        "engine": engine,
    }
    return run(Scenario.model_validate(content))


def test_a_side_stream_steadies_the_decodes() -> None:
    turns, beside = simulated(), simulated(encoder_side_stream_max_ahead=4)
    assert beside.verdict == "finished"
    assert beside.summary["p99_itl_ms"] < 0.85 * turns.summary["p99_itl_ms"]
    assert beside.summary["mean_itl_ms"] < turns.summary["mean_itl_ms"]
    assert beside.summary["encoder_busy_fraction"] > turns.summary["encoder_busy_fraction"]  # slowed by the others
    assert any("an assumption" in note for note in beside.notes)
    stalls = stall_attribution(beside.iterations, 0.01)
    slowed = (stalls["encode_share"] > 0) & (stalls["encoder_tokens"] == 0)
    causes = blame(stalls)
    assert slowed.any() and causes["encode"] + causes["encode and prefill"] >= stalls.loc[slowed, "num_decodes"].sum()


def test_a_stated_interference_is_taken_with_its_source() -> None:
    stated = {"factor": 1.2, "source": "measured here"}
    resolved = simulated(encoder_side_stream_max_ahead=1, encoder_side_stream_interference=stated)
    assert resolved.notes == [note for note in resolved.notes if "interference" not in note]
    assert resolved.limits.encoder_side_stream_interference == Interference(factor=1.2, source="measured here")


def test_an_interference_without_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="goes with an encoder_side_stream_max_ahead"):
        simulated(encoder_side_stream_interference={"factor": 1.2, "source": "here"})


def test_the_executor_refuses_it_by_name() -> None:
    prepare = pytest.importorskip("executor.prepare")
    asked = simulated(encoder_side_stream_max_ahead=1).scenario
    with pytest.raises(InputError, match="encoder_side_stream_max_ahead: the executor has no side stream yet"):
        prepare.prepare(asked, None, None)
