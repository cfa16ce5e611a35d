"""What a report is made of: columns that come back as they were, rows that lose no time, a page without network."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import simulated, tandem

from sim import Scenario, plot_style, run
from sim.members import Members
from sim.output import write_run
from sim.report_data import content
from sim.report_late import late_tokens, threshold, within
from sim.report_pack import TYPES, micros, packed
from sim.report_page import FOLDER, SCRIPTS, page
from sim.report_rows import by_engine, heads, numbered_members, packed_members, packed_rows
from sim.report_runs import NO_TOKENS, ReportedRun, read_runs, reported
from sim.token_times import gaps_by_request
from sim.world import resolve
from sim.worlds import world_of
from workloads.errors import InputError

TIGHT = "tests/data/scenario.yaml"
POOLS = "scenarios/disaggregated.yaml"


def unpacked(column: Any) -> Any:
    """As decode.js reads it."""
    values = np.frombuffer(zlib.decompress(base64.b64decode(column["data"])), column["type"])
    return np.cumsum(values.astype(np.int64)) if column["delta"] else values.astype(np.int64)


def written(folder: Path, scenario: str = TIGHT, **changes: Any) -> Path:
    write_run(run(scenario, set=changes), "label", folder)
    return folder


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    return reported(written(tmp_path_factory.mktemp("tight")))


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    return reported(written(tmp_path_factory.mktemp("pooled"), POOLS, **{"workload.num_requests": 30}))


@given(st.lists(st.integers(-1, 2**50), max_size=30), st.booleans())
def test_a_packed_column_comes_back(values: list[int], delta: bool) -> None:
    numbers = np.array(sorted(values) if delta else values, np.int64)
    assert unpacked(packed(numbers, delta=delta)).tolist() == numbers.tolist()


@pytest.mark.parametrize(("largest", "kind"), list(zip((127, 128, 2**15, 2**31), TYPES, strict=True)), ids=TYPES)
def test_a_column_is_as_narrow_as_it_fits(largest: int, kind: str) -> None:
    assert packed(np.array([0, largest]))["type"] == kind


def test_missing_times_are_marked() -> None:
    assert micros(np.array([1.5, np.nan, 0.0000014])).tolist() == [1_500_000, -1, 1]


@pytest.mark.parametrize("which", ["tight", "pooled"])
def test_rows_cover_every_iteration_and_all_their_time(which: str, request: pytest.FixtureRequest) -> None:
    told: ReportedRun = request.getfixturevalue(which)
    ordered = by_engine(told.iterations, told.engines)
    rows = {name: unpacked(column) for name, column in packed_rows(ordered, heads(ordered)).items()}
    assert rows["count"].sum() == len(told.iterations) > len(rows["count"])
    busy = (told.iterations["end"] - told.iterations["start"]).sum() * 1e6
    assert rows["taken"].sum() == pytest.approx(busy, rel=1e-6)
    assert (rows["count"] * rows["num_decodes"]).sum() == told.iterations["num_decodes"].sum()
    assert rows["encoder_tokens"].sum() == told.iterations["encoder_tokens"].sum()
    assert (rows["longest"] * rows["count"] >= rows["taken"] - rows["count"]).all()


@pytest.mark.parametrize("which", ["tight", "pooled"])
def test_members_carry_all_tokens_of_an_iteration(which: str, request: pytest.FixtureRequest) -> None:
    told: ReportedRun = request.getfixturevalue(which)
    ordered = by_engine(told.iterations, told.engines)
    first = heads(ordered)
    rows = packed_rows(ordered, first)
    members = packed_members(numbered_members(ordered, told.members), first)
    for which, column in (("encoding", "encoder_tokens"), ("prefilling", "num_prefill_tokens")):
        of_rows = np.zeros(len(first), np.int64)
        np.add.at(of_rows, unpacked(members[which]["row"]), unpacked(members[which]["tokens"]))
        assert of_rows.tolist() == unpacked(rows[column]).tolist()


@pytest.mark.parametrize("which", ["tight", "pooled"])
def test_the_steps_of_segments_are_those_of_rows(which: str, request: pytest.FixtureRequest) -> None:
    """A request's last token then comes when it finished, to the microsecond and what averaging in a row costs."""
    told: ReportedRun = request.getfixturevalue(which)
    rows = {name: unpacked(column) for name, column in content([told])["runs"][0]["rows"].items()}
    segments = {name: unpacked(column) for name, column in content([told])["runs"][0]["segments"].items()}
    decoding = rows["num_decodes"] > 0
    each = np.repeat(rows["taken"][decoding] / rows["count"][decoding], rows["count"][decoding])
    within_row = np.concatenate([np.arange(1, count + 1) for count in rows["count"][decoding]])
    ends = np.repeat(rows["start"][decoding], rows["count"][decoding]) + each * within_row
    finish = dict(zip(told.requests["request_id"], told.requests["finish"] * 1e6, strict=True))
    last = {}
    for owner, step, count in zip(segments["request"], segments["step"], segments["count"], strict=True):
        if count:
            last[owner] = ends[step + count - 1]
    assert last and all(abs(moment - finish[owner]) < 1000 for owner, moment in last.items())


def test_gaps_and_objectives_are_those_of_the_run(tight: ReportedRun) -> None:
    fresh = run(TIGHT)
    assert np.sort(tight.itl_sample.expand()).tolist() == np.sort(fresh.itl).tolist()
    shares = {told["name"]: told["share"] for told in within(tight)}
    assert shares["ttft"] == (fresh.requests["ttft"] <= fresh.slo.ttft).mean()
    _, gaps = gaps_by_request(fresh)
    if fresh.slo.itl is not None:
        assert shares["itl"] == (gaps <= fresh.slo.itl * 1e9).mean()


def test_late_tokens_name_their_causes(tight: ReportedRun) -> None:
    late, bound = late_tokens(tight), threshold(tight)
    carried = tight.iterations[tight.iterations["num_decodes"] > 0]
    assert bound is not None
    longer = carried[carried["end"] - carried["start"] > bound]
    assert sum(late["causes"].values()) == longer["num_decodes"].sum() > 0
    blamed = {one["request"] for one in late["culprits"]}
    assert blamed <= {request for both in tight.members[0].values() for some in both for request in some}


def test_members_of_several_engines_follow_one_another() -> None:
    both: list[Members] = [{1: ({1: 4}, {})}, {0: ({}, {1: 7, 2: 9}), 2: ({}, {2: 1})}]
    ordered = pd.DataFrame({"number": [0, 0, 1, 1, 1]})
    members = packed_members(numbered_members(ordered, both), np.array([0, 1, 2, 4]))
    columns = [unpacked(members["prefilling"][name]).tolist() for name in ("row", "request", "tokens")]
    assert columns == [[2, 2, 3], [1, 2, 2], [7, 9, 1]]
    assert unpacked(members["encoding"]["row"]).tolist() == [1]


def test_nobody_notes_members_who_is_not_asked_to() -> None:
    world = world_of(resolve(Scenario.load(TIGHT)))
    assert world.recorder.members is None


def test_each_engine_has_its_own_limits(pooled: ReportedRun) -> None:
    told = content([pooled])["runs"][0]
    limits = [one["num_kv_blocks"] for one in told["limits"]]
    assert len(limits) == len(pooled.engines) and limits[0] is None and all(limits[1:])
    assert told["late"]["causes"] and all(one["request"] >= 0 for one in told["late"]["culprits"])


def test_a_run_that_is_no_longer_simulated_alike_is_told_without_tokens(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    table = pd.read_parquet(folder / "requests.parquet")
    table["ttft"] *= 1.5
    table.to_parquet(folder / "requests.parquet")
    told = content([reported(folder)])["runs"][0]
    assert NO_TOKENS in told["notes"] and told["segments"] == {} and told["cdfs"]["itl"] == [[], []]
    assert told["rows"] and told["cdfs"]["ttft"][0]


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    folders = [written(tmp_path / name) for name in ("a", "b")]
    assert [told.label for told in read_runs(folders)] == ["label", "label-2"]


def test_labels_of_two_scenarios_carry_their_names(tmp_path: Path) -> None:
    folders = [written(tmp_path / "a"), written(tmp_path / "b", name="other")]
    assert [told.label for told in read_runs(folders)] == ["label (tight)", "label (other)"]


def test_published_figures_stand_beside_the_simulated(tmp_path: Path) -> None:
    scenario = "scenarios/published/bursty_c8.yaml"
    kinds = ("unbudgeted", "head_of_line")
    runs = [
        reported(written(tmp_path / kind, scenario, **{"policy.kind": kind, "workload.num_requests": 24}))
        for kind in kinds
    ]
    [publication] = content(runs)["published"]
    assert publication["heading"] == ["metric", "of", "published", "simulated", "note"]
    tpot = next(row for row in publication["rows"] if row[:2] == ["mean_tpot_ms", "unbudgeted"])
    assert tpot[2] == "13.9" and tpot[3] == f"{runs[0].summary['mean_tpot_ms']:.4g}"


def test_the_page_needs_no_network_and_no_other_file(tight: ReportedRun) -> None:
    text = page(content([tight]))
    assert not re.search(r"""(src|href)=["'](?!data:)|url\(|@import|fetch\(|XMLHttp""", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert all((FOLDER / name).read_text().startswith("// ") for name in SCRIPTS)
    assert {path.name for path in FOLDER.iterdir()} == {*SCRIPTS, "page.html", "style.css"}


def test_no_text_of_a_run_can_end_the_element_that_it_stands_in(tight: ReportedRun) -> None:
    told = content([tight])
    told["title"] = told["runs"][0]["label"] = "</script><b>{{data}}"
    text = page(told)
    assert "<b>" not in text
    [data] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data) == told


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    texts = [page(content(read_runs([written(tmp_path / name)]))) for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_colours_are_those_of_the_plots() -> None:
    light = (FOLDER / "style.css").read_text().split('[data-theme="dark"]')[0]
    told = {name.upper(): value.upper() for name, value in re.findall(r"--([\w-]+): (#\w{6})", light)}
    for name in ("BLUE", "VERMILION", "GREEN", "PURPLE", "ORANGE", "SKY", "BLACK", "SAND", "INK"):
        assert told[name] == getattr(plot_style, name).upper()


def test_the_command_writes_one_page_of_all_variants(tmp_path: Path) -> None:
    simulated(tmp_path / "runs", TIGHT, "--set", "policy.kind=fcfs,footprint")
    result = tandem("report", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert f"{tmp_path / 'runs' / 'report.html'}: 2 runs" in result.output
    assert "footprint" in (tmp_path / "runs" / "report.html").read_text()
    elsewhere = tandem("report", tmp_path / "runs", "--out", tmp_path / "new" / "page.html")
    assert elsewhere.exit_code == 0 and (tmp_path / "new" / "page.html").exists()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]


def test_a_new_run_takes_the_old_ones_report_away(tmp_path: Path) -> None:
    simulated(tmp_path / "run", TIGHT)
    tandem("report", tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
    simulated(tmp_path / "run", TIGHT)
    assert not (tmp_path / "run" / "report.html").exists()


def test_wrong_folders_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, words in ((tmp_path / "none", "is no folder"), (tmp_path / "empty", "holds no run")):
        result = tandem("report", folder, "--out", tmp_path / "page.html")
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_a_folder_in_the_pages_place_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    (folder / "report.html").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        from sim.report_command import ReportCommand

        ReportCommand([folder], None)
