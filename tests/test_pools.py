"""Several engines: nothing lost between them, paths that agree, and what queueing theory and equal twins demand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from acting import APART, POLICIES
from checks import assert_clean
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pool_servers import Pooled, Shape, serve_pools
from rules import MS, Sized, limits, request
from small_loads import Load, loads, resolved
from test_fast_path import assert_same
from test_invariants import assert_parts_sum_to_the_ttft, assert_times_are_in_order

from sim import Scenario
from sim import run as simulate
from sim.output import write_run
from sim.plots import write_plots
from workloads.errors import InputError
from workloads.request import Request

ROOT = Path(__file__).parent.parent

RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
every_policy = pytest.mark.parametrize("policy", APART)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """From instant to so slow a link that everything waits for it; a round 1 ms now and then, so that times meet."""
    encode, decode = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return Shape(
        encode=encode,
        prefill=draw(st.integers(1, 2)),
        decode=decode,
        gigabytes_per_second=draw(st.sampled_from([1e12, 1.0, 0.032768, 0.001])),
        latency_ms=draw(st.sampled_from([0.0, 1.0, 0.37])),
        router=draw(st.sampled_from(["round_robin", "least_loaded"])),
    )


def served(load: Load, policy: str, shape: Shape, fast_path: bool = True, encode_token: int = 13_003) -> Pooled:
    return serve_pools(resolved(load, policy), policy, shape, fast_path=fast_path, encode_token=encode_token)


@every_policy
@RANDOM
@given(load=loads(), shape=shapes(), fast_path=st.booleans())
def test_every_rule_holds_in_every_run(policy: str, load: Load, shape: Shape, fast_path: bool) -> None:
    """`serve_pools` checks every engine's invariants, and where everybody is, before every draft."""
    run = served(load, policy, shape, fast_path)
    assert set(run.status) == set(run.table.index) == {r.id for r in load.requests}
    assert set(run.status.values()) <= {"finished", "cancelled", "stalled"}
    assert_times_are_in_order(run)
    assert_parts_sum_to_the_ttft(run)
    done = run.table[run.table["status"] == "finished"]
    assert done["output_tokens"].tolist() == [run.requests[id].request.output_tokens for id in done.index]
    assert run.itl.size == (done["output_tokens"] - 1).sum()
    assert (run.itl.values[run.itl.weights > 0] > 0).all()
    if run.verdict == "finished":
        for engine in run.cluster.engines:
            assert_clean(engine.state)


@every_policy
@RANDOM
@given(load=loads(), shape=shapes(), encode_token=st.sampled_from([13_003, 100_000, 0]))
def test_paths_agree(policy: str, load: Load, shape: Shape, encode_token: int) -> None:
    quick, slow = (served(load, policy, shape, fast_path, encode_token) for fast_path in (True, False))
    assert_same(quick.tables, slow.tables)


@pytest.mark.parametrize("policy", ["unbudgeted", "footprint"])
@RANDOM
@given(load=loads(cancelled=False), shape=shapes())
def test_no_stall_where_there_is_no_reason_for_one(policy: str, load: Load, shape: Shape) -> None:
    assert set(served(load, policy, shape).status.values()) == {"finished"}


def image(id: int, *, output: int = 5, arrival: int = 0) -> Request:
    return request(id, [Sized(2, 3)], text=2, output=output, arrival=arrival)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0.05, "being encoded"),
        (1.0, "on the link with its rows"),
        (4.5, "being prefilled"),
        (6.0, "on the link with its KV"),
        (60.0, "decoding"),
    ],
)
def test_a_cancelled_request_leaves_nothing_behind_wherever_it_is(at: float, words: str) -> None:
    """Rows take 3 x 32,768 bytes at 0.032768 GB/s, which is 3 ms; KV far longer; the other request goes on."""
    asked = (image(0, output=30), image(1, output=30, arrival=MS))
    shape = Shape(decode=1, gigabytes_per_second=0.032768)
    whole = serve_pools(Load(asked, limits(), {}), "fcfs", shape)
    assert set(whole.status.values()) == {"finished"}, words
    assert round(whole.table.loc[0, "transfer"], 9) == 0.003
    cancelled = serve_pools(Load(asked, limits(), {0: round(at * MS)}), "fcfs", shape)
    assert cancelled.status == {0: "cancelled", 1: "finished"}
    assert cancelled.requests[0].finish < at * MS + 2 * MS
    for engine in cancelled.cluster.engines:
        assert_clean(engine.state)


def test_who_waits_for_room_elsewhere_is_named() -> None:
    """One answer of 500 tokens has the only seat; the next ones are held in the prefill engine, in order."""
    seat = limits(max_num_seqs=1, max_num_batched_tokens=100)
    shape = Shape(encode=0, decode=1, gigabytes_per_second=1e12, limits={"decode": seat})
    asked = tuple(request(id, text=20, output=500) for id in range(3))
    run = serve_pools(Load(asked, limits(num_kv_blocks=100), {}), "fcfs", shape, until=100 * MS)
    assert run.blockers[1] == ("waits in prefill-0 for decode-0: 33 KV blocks, 267 not reserved; 1 of 1 seats taken")
    assert run.blockers[2] == "waits in prefill-0 for decode-0: behind request 1"


def test_who_waits_for_rows_elsewhere_is_named() -> None:
    """The prefill engine's cache holds one request's rows, and it has no seat for that one yet."""
    tight = limits(max_num_seqs=1, encoder_cache_rows=3, max_num_batched_tokens=100)
    asked = (request(0, output=500), image(1), image(2), image(3))
    shape = Shape(gigabytes_per_second=1e12, limits={"prefill": tight})
    run = serve_pools(Load(asked, limits(), {}), "fcfs", shape, until=100 * MS)
    assert run.blockers[1] == "in prefill-0: waits in the queue: all 1 seats are taken"
    words = "waits in encode-0 for prefill-0: 3 encoder-cache rows, of 3, 3 held by request 1 (3)"
    assert run.blockers[2] == words
    assert run.blockers[3] == "waits in encode-0 for prefill-0: behind request 2"


def test_a_stall_in_the_encode_pool_is_named() -> None:
    pools = {"encode": {}, "link": {"gigabytes_per_second": 50}}
    stalled = simulate(ROOT / "scenarios/deadlock.yaml", {"pools": pools, "policy.kind": "head_of_line"})
    assert stalled.verdict == "stalled" and stalled.blockers.keys() == {1, 2}
    assert stalled.blockers[1].startswith("in encode-0: waits for") and "request 2" in stalled.blockers[1]
    finished = simulate(ROOT / "scenarios/deadlock.yaml", {"pools": pools, "policy.kind": "footprint"})
    assert finished.verdict == "finished"


def test_tables_and_plots_of_several_engines(tmp_path: Path) -> None:
    few = {"workload.num_requests": 12, "pools.prefill.engines": 2}
    run = simulate(ROOT / "scenarios/disaggregated.yaml", few)
    write_run(run, "x", tmp_path)
    iterations = pd.read_parquet(tmp_path / "iterations.parquet")
    pd.testing.assert_frame_equal(iterations, run.iterations)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "requests.parquet"), run.requests)
    assert iterations["start"].is_monotonic_increasing
    assert set(iterations["engine"]) == {"encode-0", "prefill-0", "prefill-1"}
    for _, own in iterations.groupby("engine", observed=True):
        assert (own["start"].to_numpy()[1:] >= own["end"].to_numpy()[:-1]).all()
    drawn = {path.stem for path in write_plots([("x", run)], tmp_path / "plots")}
    assert {f"{plot}-{name}" for plot in ("iteration_timeline", "occupancy") for name in run.engines} <= drawn
    again = Scenario.load(tmp_path / "scenario.yaml")
    assert again.pools == run.scenario.pools and simulate(again).decisions == run.decisions


@pytest.mark.parametrize("policy", [kind for kind in POLICIES if kind not in APART])
def test_engines_that_encode_in_their_own_iterations_are_refused(policy: str) -> None:
    changes = {"policy.kind": policy, "workload.num_requests": 5}
    for name, place in (("disaggregated", "pools"), ("side_stream", "engine.encoder_side_stream_max_ahead")):
        with pytest.raises(InputError, match=f"^{place}: not under {policy}, .*; under unbudgeted, fcfs"):
            simulate(Scenario.load(ROOT / "scenarios" / f"{name}.yaml", changes))


def test_an_event_loop_is_refused() -> None:
    with pytest.raises(InputError, match=r"front_end\.event_loop: not with pools"):
        simulate(Scenario.load("scenarios/disaggregated.yaml", {"front_end": {"event_loop": True}}))
