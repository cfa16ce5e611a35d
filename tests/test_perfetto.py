"""Timelines: of the Trace Event Format, and nothing in them but what the tables say."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_format import by_lane, check, end, read, slice_at, start
from typer.testing import CliRunner, Result

from cli import app
from sim import Run, run
from sim.perfetto import Timeline, Window
from sim.perfetto_engine import LANES
from sim.perfetto_events import between, lanes
from sim.perfetto_output import window, write_timeline
from workloads.errors import InputError

TIGHT = "tests/data/scenario.yaml"
HOST, ENCODER, PREFILL, DECODE = LANES
SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "tight": (TIGHT, {}),
    "preempting": (TIGHT, {"engine.capacity": "max_utilization", "engine.num_kv_blocks": 700}),
    "cancelled": (TIGHT, {"clients": {"timeout": 2}}),
    "closed": (TIGHT, {"workload.arrivals": {"kind": "concurrency", "users": 4}}),
    "stalled": ("scenarios/deadlock.yaml", {"policy.kind": "head_of_line"}),
    "side_stream": ("scenarios/side_stream.yaml", {"workload.num_requests": 40}),
    "disaggregated": ("scenarios/disaggregated.yaml", {"workload.num_requests": 40}),
    "vllm": (TIGHT, {"policy": {"kind": "vllm"}}),
}


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture(scope="module", params=SCENARIOS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[dict[str, Any]]]:
    """A run and the events of its timeline, checked."""
    file, changes = SCENARIOS[request.param]
    folder, done = tmp_path_factory.mktemp(request.param), run(file, set=changes)
    assert write_timeline(done, folder, Window()) == []
    return done, check(read(folder / "trace.json.gz"))


def test_every_iteration_is_there_with_its_times(made: tuple[Run, list[dict[str, Any]]]) -> None:
    done, events = made
    found = by_lane(events)
    for process, engine in enumerate(done.engines, 1):
        table = done.iterations[done.iterations["engine"] == engine]
        for lane, column in ((PREFILL, "num_prefill_tokens"), (DECODE, "num_decodes")):
            busy = table[(table[column] > 0) & (table["compute"] > 0)]
            slices = found[process, lane]
            assert [one["args"]["iteration"] for one in slices] == busy["iteration"].tolist()
            assert [one["name"] for one in slices] == [f"{LANES[lane]} {amount}" for amount in busy[column]]
            assert [end(one) for one in slices] == np.rint(busy["end"] * 1e9).astype(int).tolist()
        host = sum(one["dur"] for one in found[process, HOST]) / 1e6
        assert host == pytest.approx(table["host"].sum())


def test_encoding_is_as_long_as_it_took(made: tuple[Run, list[dict[str, Any]]]) -> None:
    done, events = made
    shown = sum(
        one["dur"] for lane, slices in by_lane(events).items() for one in slices if lane[1] == ENCODER and lane[0]
    )
    spans = done.spans.get("encoder_busy_fraction")
    wanted = done.iterations["encode"].sum() if spans is None else sum(stop - begun for begun, stop in spans) / 1e9
    assert shown / 1e6 == pytest.approx(wanted)


def test_arrivals_lead_to_first_tokens(made: tuple[Run, list[dict[str, Any]]]) -> None:
    """Of every request that got one."""
    done, events = made
    answered = done.requests[done.requests["first_token"].notna()]
    found, starts = by_lane(events), {event["id"]: event for event in events if event["ph"] == "s"}
    assert sorted(starts) == answered["request_id"].tolist()
    for event in events:
        if event["ph"] == "f":
            row = done.requests.loc[event["id"]]
            prefill = slice_at(found[event["pid"], event["tid"]], event)
            assert prefill is not None and event["tid"] == PREFILL
            assert end(prefill) == round((row["first_token"] - row["delivery"]) * 1e9)
            assert start(starts[event["id"]]) == round(row["arrival"] * 1e9)
            request = slice_at(found[0, starts[event["id"]]["tid"]], starts[event["id"]])
            assert request is not None and request["args"]["request_id"] == event["id"]


def test_counters_are_the_tables_columns(made: tuple[Run, list[dict[str, Any]]]) -> None:
    done, events = made
    row_bytes = done.scenario.model.embedding_row_bytes
    columns = {
        "KV blocks": ("kv_blocks_used", 1),
        "encoder cache held (bytes)": ("encoder_rows_held", row_bytes),
        "encoder cache resident (bytes)": ("encoder_rows_resident", row_bytes),
        "running": ("num_running", 1),
        "waiting": ("num_waiting", 1),
    }
    for process, engine in enumerate(done.engines, 1):
        table = done.iterations[done.iterations["engine"] == engine]
        times = np.rint(table["start"] * 1e9).astype(int).to_numpy()
        for name, (column, factor) in columns.items():
            track = [
                event for event in events if event["ph"] == "C" and (event["pid"], event["name"]) == (process, name)
            ]
            at = np.searchsorted([start(event) for event in track], times, side="right") - 1
            values = np.array([event["args"]["value"] for event in track])[at]
            assert values.tolist() == (table[column] * factor).tolist(), name


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_timeline(run(TIGHT), tmp_path / name, Window())
    assert (tmp_path / "a" / "trace.json.gz").read_bytes() == (tmp_path / "b" / "trace.json.gz").read_bytes()


def test_a_window_has_what_happens_in_it(tmp_path: Path) -> None:
    done = run(TIGHT)
    left_out = write_timeline(done, tmp_path, Window(1.0, 2.0))
    events = check(read(tmp_path / "trace.json.gz"))
    table = done.iterations
    inside = table[(table["end"] > 1) & (table["start"] < 2)]
    assert left_out == [f"{len(inside)} of {len(table)} iterations, from 1 to 2 s"]
    shown = {one["args"]["iteration"] for lane, slices in by_lane(events).items() if lane[0] for one in slices}
    assert shown == set(inside["iteration"])
    assert read(tmp_path / "trace.json.gz")["otherData"]["left_out"] == left_out


def test_no_more_iterations_than_can_be_drawn(tmp_path: Path) -> None:
    done = run(TIGHT)
    timeline = Timeline(done, Window(), most=50)
    shown = Counter(event["tid"] for event in timeline.events() if event["ph"] == "X" and event["pid"])
    assert shown[HOST] == 50
    end_ = done.iterations["start"].iloc[50]
    assert timeline.left_out == [f"50 of {len(done.iterations)} iterations, from 0 to {end_:g} s"]


def test_requests_past_the_lanes_are_counted() -> None:
    changes = {"workload.num_requests": 70, "workload.arrivals": {"kind": "at_once"}}
    timeline = Timeline(run(TIGHT, set=changes), Window())
    assert timeline.left_out == ["6 requests overlap more than 63 others in the front end"]
    assert len({event["tid"] for event in timeline.events() if event["ph"] == "X" and not event["pid"]}) == 64


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30), st.integers(1, 5))
def test_nobody_shares_a_lane_at_a_time(drawn: list[tuple[int, int]], most: int) -> None:
    intervals = sorted((begin, begin + size) for begin, size in drawn)
    given = lanes([begin for begin, _ in intervals], [stop for _, stop in intervals], most)
    used: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for interval, lane in zip(intervals, given, strict=True):
        overlapping = sum(1 for those in used.values() for one in those if one[1] > interval[0])
        assert (lane == 0) == (overlapping == most)
        if lane:
            assert lane <= overlapping + 1
            assert not used[lane] or used[lane][-1][1] <= interval[0]
            used[lane].append(interval)


def test_between_iterations_numbers_fall_back_by_hand() -> None:
    starts, ends, values = np.array([0, 10, 30]), np.array([10, 20, 40]), np.array([3, 4, 5])
    times, held = between(starts, ends, values, 0)
    assert (times.tolist(), held.tolist()) == ([0, 10, 20, 30, 40], [3, 4, 0, 5, 0])
    times, held = between(starts, ends, values, None)
    assert (times.tolist(), held.tolist()) == ([0, 10, 30], [3, 4, 5])


@pytest.mark.parametrize(("text", "found"), [("1:2", (1, 2)), (":2.5", (0, 2.5)), ("1:", (1, np.inf))])
def test_a_window_is_two_moments(text: str, found: tuple[float, float]) -> None:
    assert window(text) == Window(*found)


@pytest.mark.parametrize("text", ["", "1", "2:1", "1:1", "-1:2", "a:b", "1:2:3", "nan:2"])
def test_what_is_no_window_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"--trace-window .*: reads like START:END in seconds"):
        window(text)


def test_the_command_writes_a_timeline_and_a_run_without_removes_it(tmp_path: Path) -> None:
    result = tandem("run", TIGHT, "--out", tmp_path, "--no-plots", "--trace-window", ":1")
    assert result.exit_code == 0, result.output
    assert f"timeline for ui.perfetto.dev: {tmp_path / 'trace.json.gz'} (" in result.output
    assert "--trace-window START:END shows others" in result.output
    check(read(tmp_path / "trace.json.gz"))
    assert tandem("run", TIGHT, "--out", tmp_path, "--no-plots").exit_code == 0
    assert not (tmp_path / "trace.json.gz").exists()


def test_every_variant_and_the_first_of_several_has_one(tmp_path: Path) -> None:
    sets = ["--set", "policy.kind=fcfs,footprint", "--set", "replications=2"]
    assert tandem("run", TIGHT, *sets, "--out", tmp_path, "--no-plots", "--trace").exit_code == 0
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("trace.json.gz"))
    assert found == ["fcfs/seed-1/trace.json.gz", "footprint/seed-1/trace.json.gz"]


def test_without_iterations_there_is_no_timeline(tmp_path: Path) -> None:
    result = tandem("run", TIGHT, "--set", "measure.iterations=false", "--out", tmp_path / "out", "--trace")
    assert result.exit_code == 2 and "--trace: a timeline is of iterations" in result.stderr
    assert not (tmp_path / "out").exists()
