"""Files of real benchmarks: what is read from them is what the tools themselves say; what is written is read back."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from cli import app
from sim import run
from sim.client_view import ClientView, Seen, client_view
from sim.export_aiperf import export_aiperf
from sim.measured_aiperf import read_aiperf
from sim.measured_guidellm import read_guidellm
from sim.measured_output import read_measured, write_measured
from sim.measured_vllm import read_vllm
from sim.seen_runs import seen_run
from workloads.errors import InputError

DATA = Path("tests/data/benchmarks")
AIPERF, AIPERF_CSV = DATA / "profile_export.jsonl", DATA / "profile_export_aiperf.csv"
VLLM, GUIDELLM = DATA / "vllm_bench.json", DATA / "guidellm.json"
TIGHT = "tests/data/scenario.yaml"
READERS = {"aiperf": (read_aiperf, AIPERF), "vllm-bench": (read_vllm, VLLM), "guidellm": (read_guidellm, GUIDELLM)}


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def aiperf_csv(path: Path) -> dict[str, dict[str, float]]:
    """Rows of both parts of aiperf's CSV by their names: statistics, and single figures as `Value`."""
    head, *rest = path.read_text().split("\n\n")
    parts = [head, *rest][:2]
    rows = [row for part in parts for row in csv.DictReader(part.splitlines())]
    return {row["Metric"]: {k: float(v) for k, v in row.items() if v and k != "Metric"} for row in rows}


def test_aiperf_says_the_same_of_its_own_run() -> None:
    """Its statistics are numpy's; its inter token latency is TPOT here, its chunks' latency ITL."""
    (view,) = read_aiperf(AIPERF)
    theirs, ours = aiperf_csv(AIPERF_CSV), view.summary
    names = {
        "Time to First Token (ms)": "ttft",
        "Inter Token Latency (ms)": "tpot",
        "Inter Chunk Latency (ms)": "itl",
        "Request Latency (ms)": "e2el",
    }
    for theirs_called, name in names.items():
        said = theirs[theirs_called]
        figures = {"mean": "avg", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "std": "std"}
        for statistic, column in figures.items():
            assert ours[f"{statistic}_{name}_ms"] == pytest.approx(said[column], abs=0.0051), (name, statistic)
    assert ours["completed"] == theirs["Request Count"]["Value"] == 5
    assert ours["failed"] == theirs["Error Request Count"]["Value"] == 3
    assert ours["total_output_tokens"] == theirs["Total Output Sequence Length (tokens)"]["Value"] == 60
    assert ours["num_encodes"] is None
    assert view.requests["num_items"].tolist() == [1] * 5 + [0] * 3


def test_the_warm_up_of_aiperf_is_left_out() -> None:
    phases = [json.loads(line)["metadata"]["benchmark_phase"] for line in AIPERF.read_text().splitlines()]
    assert phases.count("warmup") == 1
    assert len(read_aiperf(AIPERF)[0].requests) == len(phases) - 1


def test_vllm_says_the_same_of_its_own_run() -> None:
    (view,) = read_vllm(VLLM)
    theirs, ours = json.loads(VLLM.read_text()), view.summary
    keys = [key for key in theirs if key.startswith(("mean_", "median_", "std_", "p99_"))]
    assert len(keys) == 12
    for key in keys:
        assert ours[key] == pytest.approx(theirs[key], rel=1e-6), key
    counts = ("completed", "failed", "total_input_tokens", "total_output_tokens", "max_output_tokens_per_s")
    for key in counts:
        assert ours[key] == theirs[key], key
    assert view.requests["reason"].tolist()[-1] == "Internal Server Error"


def test_guidellm_says_the_same_of_its_own_run() -> None:
    """Its inter token latency is a request's mean gap, too; it knows no single gaps."""
    (view,) = read_guidellm(GUIDELLM)
    metrics, ours = json.loads(GUIDELLM.read_text())["benchmarks"][0]["metrics"], view.summary
    for theirs_called, name in {"time_to_first_token_ms": "ttft", "inter_token_latency_ms": "tpot"}.items():
        said = metrics[theirs_called]["successful"]
        assert ours[f"mean_{name}_ms"] == pytest.approx(said["mean"], rel=1e-4)
        assert ours[f"std_{name}_ms"] == pytest.approx(said["std_dev"], rel=1e-3)
    assert (ours["completed"], ours["failed"], ours["mean_itl_ms"]) == (6, 2, None)
    assert view.source == "guidellm 0.8.1"


def test_of_several_benchmarks_each_is_a_run(tmp_path: Path) -> None:
    report = json.loads(GUIDELLM.read_text())
    first = report["benchmarks"][0]
    second = json.loads(json.dumps(first))
    second["config"]["strategy"] = {"type_": "concurrent", "streams": 4}
    report["benchmarks"] = [first, second]
    (tmp_path / "two.json").write_text(json.dumps(report))
    result = tandem("import", "guidellm", tmp_path / "two.json", "--out", tmp_path / "two")
    assert result.exit_code == 0, result.output
    folders = {path.name for path in (tmp_path / "two").iterdir()}
    assert folders == {"constant=6", "concurrent=4"}


@pytest.mark.parametrize("tool", READERS)
def test_an_imported_run_has_the_files_of_one(tmp_path: Path, tool: str) -> None:
    read, file = READERS[tool]
    result = tandem("import", tool, file, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    (view,) = read(file)
    about = json.loads((tmp_path / "run.json").read_text())
    assert (about["origin"], about["verdict"], about["source"]) == ("measured", "finished", view.source)
    assert json.loads((tmp_path / "summary.json").read_text()) == view.summary
    again = read_measured(tmp_path)
    pd.testing.assert_frame_equal(again.requests, view.requests, check_dtype=False)
    assert again.summary == view.summary
    assert set(pd.read_parquet(tmp_path / "requests.parquet").columns) == set(run(TIGHT).requests.columns)


@pytest.mark.parametrize("tool", READERS)
def test_the_load_of_an_imported_run_can_be_simulated(tmp_path: Path, tool: str) -> None:
    assert tandem("import", tool, READERS[tool][1], "--out", tmp_path).exit_code == 0
    (view,) = READERS[tool][0](READERS[tool][1])
    again = run(TIGHT, set={"workload": {"kind": "jsonl", "path": str(tmp_path / "trace.jsonl")}}).requests
    done = view.requests[view.requests["status"] == "finished"]
    for name in ("arrival", "prompt_tokens", "output_tokens"):
        assert again[name].tolist() == done[name].tolist()


def test_another_run_in_the_same_place_leaves_nothing_behind(tmp_path: Path) -> None:
    assert tandem("run", TIGHT, "--out", tmp_path, "--no-plots").exit_code == 0
    assert tandem("import", "guidellm", GUIDELLM, "--out", tmp_path).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "requests.parquet",
        "run.json",
        "summary.json",
        "trace.jsonl",
    }
    assert tandem("run", TIGHT, "--out", tmp_path, "--no-plots").exit_code == 0
    assert not (tmp_path / "trace.jsonl").exists()


WRONG = [
    ("aiperf", "", "is empty"),
    ("aiperf", "{", ":1: is not JSON"),
    ("aiperf", '{"metrics": {}}', "metadata: Field required; wanted is profile_export.jsonl"),
    (
        "aiperf",
        '{"metadata": {"request_start_ns": 1}, "metrics": {}}',
        "metrics.time_to_first_token is missing: aiperf",
    ),
    (
        "aiperf",
        '{"metadata": {"request_start_ns": 1, "benchmark_phase": "warmup"}, "metrics": {}}',
        "has no request of the phase profiling",
    ),
    ("vllm-bench", '{"duration": 1}', "input_lens: Field required; wanted is a file of `vllm bench serve"),
    ("guidellm", '{"benchmarks": []}', "has no benchmark"),
    ("guidellm", "{}\n{}", "is not JSON; wanted is a report of `guidellm run"),
    ("guidellm", '{"benchmarks": [{}]}', "benchmarks.0.requests: Field required"),
    ("vllm", "{}", "vllm: no benchmark that can be read; nearest: vllm-bench"),
]


@pytest.mark.parametrize(("tool", "text", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_a_file_that_is_none_of_the_tools_is_one_line(tmp_path: Path, tool: str, text: str, message: str) -> None:
    (tmp_path / "file").write_text(text)
    result = tandem("import", tool, tmp_path / "file", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    content = json.loads(VLLM.read_text())
    content["ttfts"].pop()
    (tmp_path / "short.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"lists of different lengths: .*'ttfts': 7"):
        read_vllm(tmp_path / "short.json")


def test_older_files_of_vllm_have_no_latencies(tmp_path: Path) -> None:
    """Then they add up from the gaps."""
    content = json.loads(VLLM.read_text())
    del content["latencies"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert read_vllm(tmp_path / "old.json")[0].summary["mean_e2el_ms"] == pytest.approx(
        read_vllm(VLLM)[0].summary["mean_e2el_ms"], rel=1e-3
    )


def test_appended_results_are_runs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text(VLLM.read_text() + "\n" + VLLM.read_text())
    assert [view.label for view in read_vllm(tmp_path / "two.json")] == ["1", "2"]


def exported(view: ClientView, folder: Path) -> ClientView:
    records, _ = export_aiperf(view, folder)
    return read_aiperf(records)[0]


def test_what_is_exported_to_aiperf_is_imported_as_it_was(tmp_path: Path) -> None:
    """But for what a client cannot see, and the metrics of requests that did not finish."""
    changes = ["--set", "clients={timeout: 3}"]
    assert tandem("run", TIGHT, *changes, "--out", tmp_path, "--no-plots").exit_code == 0
    view = seen_run(tmp_path)
    assert set(view.requests["status"]) == {"finished", "cancelled"}
    again = exported(view, tmp_path)
    assert again.requests["status"].tolist() == view.requests["status"].tolist()
    done = (view.requests["status"] == "finished").to_numpy()
    ours, theirs = again.requests[done], view.requests[done]
    first = view.requests["arrival"].iloc[0]
    for name in ("arrival", "first_token", "finish"):
        np.testing.assert_allclose(ours[name] + first, theirs[name], rtol=0, atol=1e-9)
    for name in ("prompt_tokens", "output_tokens", "num_items", "ttft", "tpot", "e2el"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9)
    assert view.gaps is not None and again.gaps is not None
    assert all(np.array_equal(one, other) for one, other in zip(again.gaps, view.gaps, strict=True))


def test_the_exported_csv_says_what_the_summary_does(tmp_path: Path) -> None:
    assert tandem("run", TIGHT, "--out", tmp_path, "--no-plots").exit_code == 0
    assert tandem("export", "aiperf", tmp_path).exit_code == 0
    said, summary = aiperf_csv(tmp_path / "aiperf" / "profile_export_aiperf.csv"), run(TIGHT).summary
    names = {"Time to First Token (ms)": "ttft", "Inter Token Latency (ms)": "tpot", "Inter Chunk Latency (ms)": "itl"}
    for called, name in names.items():
        assert said[called]["avg"] == pytest.approx(summary[f"mean_{name}_ms"], abs=0.0051)
        assert said[called]["p99"] == pytest.approx(summary[f"p99_{name}_ms"], abs=0.0051)
    assert said["Request Throughput (requests/sec)"]["Value"] == pytest.approx(
        summary["request_throughput"], abs=0.0051
    )
    columns = set(csv.DictReader(AIPERF_CSV.read_text().splitlines()).fieldnames or ())
    ours = csv.DictReader((tmp_path / "aiperf" / "profile_export_aiperf.csv").read_text().splitlines())
    assert set(ours.fieldnames or ()) == columns


def test_names_and_tags_that_are_exported_are_aiperfs(tmp_path: Path) -> None:
    (view,) = read_aiperf(AIPERF)
    records, summary = export_aiperf(view, tmp_path)
    theirs = json.loads(AIPERF.read_text().splitlines()[1])
    ours = json.loads(records.read_text().splitlines()[0])
    assert ours["metadata"].keys() <= theirs["metadata"].keys()
    for tag, metric in ours["metrics"].items():
        assert metric["unit"] == theirs["metrics"][tag]["unit"], tag
        values = [np.asarray(said["metrics"][tag]["value"], float) for said in (ours, theirs)]
        assert values[0] == pytest.approx(values[1], rel=1e-5), tag
    assert set(aiperf_csv(summary)) <= set(aiperf_csv(AIPERF_CSV))


def test_a_folder_that_holds_no_run_is_one_line(tmp_path: Path) -> None:
    result = tandem("export", "aiperf", tmp_path)
    assert result.exit_code == 2 and "holds no run" in result.stderr
    assert tandem("export", "vegeta", tmp_path).stderr.startswith("error: vegeta: no benchmark whose files can be")


def test_a_broken_table_of_an_imported_run_is_one_line(tmp_path: Path) -> None:
    write_measured(read_aiperf(AIPERF)[0], tmp_path)
    shutil.copy(tmp_path / "gaps.parquet", tmp_path / "requests.parquet")
    with pytest.raises(InputError, match=r"requests.parquet: .*request_id stands there twice"):
        read_measured(tmp_path)


def test_moments_by_hand() -> None:
    """Sent at 5 and 6 s; the second, of three tokens, answers after 1 s, then every half second."""
    second = 10**9
    seen: list[Seen] = [
        Seen(6 * second, 10, 3, second, 2 * second, [second // 2, second // 2]),
        Seen(5 * second, 4, 1, 3 * second, 3 * second, []),
    ]
    view = client_view("a test", "x", seen)
    rows: dict[str, Any] = view.requests.to_dict("list")
    assert (rows["arrival"], rows["first_token"], rows["finish"]) == ([0, 1], [3, 2], [3, 3])
    assert np.isnan(rows["tpot"][0]) and rows["tpot"][1] == 0.5
    assert view.summary["max_output_tokens_per_s"] == 2  # at 2 and 2.5 s, and both at 3 s
    assert view.summary["duration"] == 3


@pytest.mark.parametrize(("key", "value"), [("ttfts", 1e300), ("start_times", math.inf), ("start_times", math.nan)])
def test_numbers_out_of_range_are_one_line(tmp_path: Path, key: str, value: float) -> None:
    content = json.loads(VLLM.read_text())
    content[key] = [value, *content[key][1:]]
    (tmp_path / "odd.json").write_text(json.dumps(content))
    result = tandem("import", "vllm-bench", tmp_path / "odd.json", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "out of range" in result.output, result.output
    assert not (tmp_path / "out").exists()


def test_a_report_replaces_nothing_but_a_page(tmp_path: Path) -> None:
    assert tandem("run", TIGHT, "--no-plots", "--out", tmp_path).exit_code == 0
    before = (tmp_path / "requests.parquet").read_bytes()
    result = tandem("report", tmp_path, "--out", tmp_path / "requests.parquet")
    assert result.exit_code == 2 and "is there and is no page" in result.output
    assert (tmp_path / "requests.parquet").read_bytes() == before
