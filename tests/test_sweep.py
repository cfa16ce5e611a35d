"""Sweeps: what a point comes to, what is kept, and that a killed sweep ends as an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner, Result

import sim.sweep_workers
from cli import app
from sim import Scenario, run
from sim.memory_replay import MEMORY_METRICS
from sim.published import METRICS
from sim.sweep_file import Sweep
from sim.sweep_points import Points
from sim.sweep_results import Results
from sim.sweep_search import search_of

SCENARIO = str(Path("tests/data/scenario.yaml").resolve())
RATE, KIND, ROWS = "workload.arrivals.rate", "policy.kind", "engine.encoder_cache_rows"
GRID = {KIND: ["head_of_line", "footprint"], RATE: [4, 8.5]}


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def written(folder: Path, **content: Any) -> Path:
    path = folder / "budgets.yaml"
    path.write_text(yaml.safe_dump({"scenario": SCENARIO, "knobs": GRID} | content, sort_keys=False))
    return path


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def sweep(file: Path, out: Path, *arguments: str) -> str:
    where = () if "--dask" in arguments else ("--jobs", "1")
    result = tandem("sweep", file, "--out", out, *where, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def table(out: Path) -> pd.DataFrame:
    return pq.read_table(out / "results").to_pandas()


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "results").iterdir()}


def test_every_point_is_what_tandem_run_gives(tmp_path: Path) -> None:
    sweep(written(tmp_path, replications=2), tmp_path)
    rows = table(tmp_path)
    assert len(rows) == 8 == rows["point"].nunique()
    assert (rows["verdict"] == "finished").all()
    for row in rows.to_dict("records"):
        changes = {KIND: row[KIND], RATE: row[RATE], "seed": row["seed"]}
        summary = run(SCENARIO, set=changes).summary
        figures = {name: np.nan if summary.get(name) is None else summary[name] for name in METRICS}
        assert {name: row[name] for name in METRICS} == pytest.approx(figures, rel=0, abs=0, nan_ok=True)
    assert sorted(zip(rows["seed"], rows["replication"], strict=True)) == [(1, 0)] * 4 + [(2, 1)] * 4


def test_the_summary_has_the_figures_that_results_have() -> None:
    assert set(run(SCENARIO).summary) == set(METRICS) - set(MEMORY_METRICS)  # those only where a scenario asks


def test_a_second_sweep_simulates_only_what_is_new(tmp_path: Path) -> None:
    assert "4 points in" in sweep(written(tmp_path), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    output = sweep(written(tmp_path, knobs=GRID | {RATE: [4, 8.5, 2]}), tmp_path)
    assert "2 points in" in output and "4 were there" in output
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    assert len(after) == 6 and before.items() <= after.items()


def test_points_that_resolve_alike_are_one(tmp_path: Path) -> None:
    """A budget below the largest item is raised to it, so both values mean the same."""
    output = sweep(written(tmp_path, knobs={"engine.encoder_max_num_tokens": [1, 2]}), tmp_path)
    assert "1 point in" in output
    assert len(table(tmp_path)) == 1


def test_what_changes_a_result_changes_the_point(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{"id":0,"arrival":0,"prompt_tokens":9,"output_tokens":%d,"items":[],"block_hashes":[]}\n'
    trace.write_text(line % 3)
    workload = {"workload": {"kind": "jsonl", "path": str(trace)}}
    file = written(tmp_path, set=workload, knobs={KIND: ["fcfs"]})
    sweep(file, tmp_path)
    sim.sweep_points._content.cache_clear()  # as another process would
    trace.write_text(line % 4)
    sweep(file, tmp_path)
    assert table(tmp_path)["total_output_tokens"].sort_values().tolist() == [3, 4]


def test_a_point_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    knobs = {"engine.max_num_batched_tokens": [2048, 8192], "engine.max_num_seqs": [64, 4096]}
    output = sweep(written(tmp_path, knobs=knobs), tmp_path)
    failed = table(tmp_path).query("verdict != 'finished'")
    assert len(failed) == 1
    assert failed["verdict"].item() == "invalid"
    assert failed["reason"].item().startswith("knobs.engine: max_num_batched_tokens (2048) must be at least")
    assert failed["completed"].isna().all()
    assert "1 point invalid: knobs.engine: max_num_batched_tokens (2048)" in output
    assert "best first" in output


def test_an_error_in_the_middle_of_a_point_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(resolved: Any) -> Any:
        if resolved.scenario.policy.kind == "footprint":
            raise ZeroDivisionError("division by zero")
        return real(resolved)

    real = sim.sweep_row.simulate_resolved
    monkeypatch.setattr(sim.sweep_row, "simulate_resolved", broken)
    sweep(written(tmp_path), tmp_path)
    rows = table(tmp_path).set_index(KIND)
    assert rows["verdict"].to_dict() == {"head_of_line": "finished", "footprint": "failed"}
    assert rows.loc["footprint", "reason"].unique().tolist() == ["ZeroDivisionError: division by zero"]


def test_a_stalled_point_says_who_waits_and_is_not_the_best(tmp_path: Path) -> None:
    deadlock = str(Path("scenarios/deadlock.yaml").resolve())
    sweep(written(tmp_path, scenario=deadlock, knobs={KIND: ["head_of_line", "footprint"]}), tmp_path)
    rows = table(tmp_path).set_index(KIND)
    assert rows["verdict"].to_dict() == {"head_of_line": "stalled", "footprint": "finished"}
    assert rows.loc["head_of_line", "reason"]
    assert Scenario.load(tmp_path / "best.yaml").policy.kind == "footprint"


def test_the_best_setting_runs_to_the_figure_that_was_printed(tmp_path: Path) -> None:
    output = sweep(written(tmp_path, best={"minimise": "p99_ttft_ms"}, knobs={RATE: [8.5, 4]}), tmp_path)
    rows = table(tmp_path).set_index(RATE)["p99_ttft_ms"]
    again = run(tmp_path / "best.yaml")
    assert again.scenario.workload.arrivals.rate == 4 == rows.idxmin()
    assert again.summary["p99_ttft_ms"] == rows.min()
    assert output.splitlines()[3].startswith("rate=4 ")
    assert "one replication does not tell chance from effect" in output


def test_tables_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path)
    sweep(file, tmp_path)
    assert not (tmp_path / "points").exists()
    assert "4 points in" in sweep(file, tmp_path, "--tables")
    for point in table(tmp_path)["point"]:
        summary = json.loads((tmp_path / "points" / point / "summary.json").read_text())
        assert summary["completed"] == 20
        assert (tmp_path / "points" / point / "requests.parquet").exists()
    assert "0 points in" in sweep(file, tmp_path, "--tables")


def test_results_of_other_knobs_are_left_alone(tmp_path: Path) -> None:
    sweep(written(tmp_path), tmp_path)
    result = tandem("sweep", written(tmp_path, knobs={ROWS: [4096, 8192]}), "--out", tmp_path)
    assert result.exit_code == 2
    assert "is of a sweep with other knobs" in result.stderr and "choose another --out" in result.stderr
    assert len(content(tmp_path)) == 4


def test_a_broken_result_is_named(tmp_path: Path) -> None:
    file = written(tmp_path)
    sweep(file, tmp_path)
    path = next((tmp_path / "results").iterdir())
    path.write_bytes(path.read_bytes()[:-10])
    result = tandem("sweep", file, "--out", tmp_path)
    assert result.exit_code == 2
    assert str(path) in result.stderr and "remove it" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("kept", range(5))
def test_interrupted_after_any_point_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    file = written(tmp_path)
    sweep(file, tmp_path / "whole")
    real = Results.add

    def add(self: Results, *told: Any) -> None:
        if len(self) == kept:
            raise KeyboardInterrupt
        real(self, *told)

    with monkeypatch.context() as patched:
        patched.setattr(Results, "add", add)
        result = tandem("sweep", file, "--out", tmp_path / "parts", "--jobs", "1")
    assert result.exit_code == (130 if kept < 4 else 0)
    assert len(content(tmp_path / "parts")) == kept
    assert f"{4 - kept} point" in sweep(file, tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


@pytest.mark.parametrize(("kept", "jobs"), [(0, 1), (1, 1), (9, 2)])
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, kept: int, jobs: int) -> None:
    """SIGKILL to the real command."""
    knobs = {KIND: ["head_of_line", "footprint"], RATE: list(range(1, 16))}
    file = written(tmp_path, set={"workload.num_requests": 200}, knobs=knobs)
    sweep(file, tmp_path / "whole")
    out = tmp_path / "parts"
    command = [
        sys.executable,
        "-c",
        "from cli import app; app()",
        "sweep",
        str(file),
        "--out",
        str(out),
        "--jobs",
        str(jobs),
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    while not out.exists() or len(list((out / "results").glob("*.parquet"))) < kept:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in (out / "results").glob("*.parquet")}
    assert kept <= len(before) < 30
    assert f"{30 - len(before)} points in" in sweep(file, out)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    assert before.items() <= after.items()
    assert content(out) == content(tmp_path / "whole")
    assert (out / "best.yaml").read_bytes() == (tmp_path / "whole" / "best.yaml").read_bytes()


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.sweep_workers, "PATIENCE", 0.2)
    result = tandem("sweep", written(tmp_path), "--out", tmp_path, "--dask", "tcp://127.0.0.1:9")
    assert result.exit_code == 2
    assert "--dask tcp://127.0.0.1:9: no scheduler answers" in result.stderr
    assert result.stderr.count("\n") == 1


def test_processes_and_a_cluster_do_not_go_together(tmp_path: Path) -> None:
    result = tandem("sweep", written(tmp_path), "--out", tmp_path, "--dask", "tcp://127.0.0.1:9", "--jobs", "2")
    assert result.exit_code == 2 and "--jobs: a Dask cluster has" in result.stderr


@pytest.fixture
def cluster() -> Iterator[str]:
    from distributed import LocalCluster

    options: dict[str, Any] = {"processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as local:
        yield local.scheduler_address


def test_a_dask_cluster_gives_the_same_results(tmp_path: Path, cluster: str) -> None:
    file = written(tmp_path, replications=2)
    sweep(file, tmp_path / "here")
    output = sweep(file, tmp_path / "there", "--dask", cluster)
    assert "8 points in" in output and f"on 2 threads of {cluster}" in output
    assert content(tmp_path / "there") == content(tmp_path / "here")


def test_the_knee_of_a_text_load_is_that_of_a_fine_grid(tmp_path: Path) -> None:
    """Within 3 %, in at most 15 simulations; the grid's steps are 1 %."""
    text = str(Path("scenarios/text_only.yaml").resolve())
    search = {"kind": "max_goodput", "attainment": 0.9}
    output = sweep(written(tmp_path, scenario=text, knobs={}, search=search), tmp_path)
    assert len(table(tmp_path)) <= 15
    found = Scenario.load(tmp_path / "best.yaml").workload.arrivals.rate
    rates = found * 1.01 ** np.arange(-8, 9)
    kept = [run(text, set={RATE: float(rate)}).summary["slo_attainment"] >= 0.9 for rate in rates]
    assert kept[0] and not kept[-1]
    assert found == pytest.approx(rates[kept].max(), rel=0.03)
    assert "rate with 90 % within the SLOs" in output


def test_every_setting_and_seed_has_a_search_of_its_own(tmp_path: Path) -> None:
    search = {"kind": "max_goodput", "attainment": 0.8, "tolerance": 0.5}
    changes = {"workload.num_requests": 100, "slo.ttft": 1.0}
    file = written(tmp_path, set=changes, knobs={KIND: ["fcfs", "footprint"]}, search=search, replications=2)
    sweep(file, tmp_path)
    rows = table(tmp_path)
    for (kind, seed), tried in rows.groupby([KIND, "seed"]):
        good = tried[tried["slo_attainment"] >= 0.8][RATE].max()
        bad = tried[(tried["slo_attainment"] < 0.8) & (tried[RATE] > good)][RATE].min()
        assert good < bad <= good * 1.5, (kind, seed)
    assert "0 points in" in sweep(file, tmp_path)


def test_the_best_rate_is_good_with_every_seed(tmp_path: Path) -> None:
    """What is printed is the mean over the seeds; at that, half of them would miss the SLOs."""
    search = {"kind": "max_goodput", "attainment": 0.8, "tolerance": 0.05}
    changes = {"workload.num_requests": 100, "slo.ttft": 1.0}
    sweep(written(tmp_path, set=changes, knobs={}, search=search, replications=3), tmp_path)
    rows = table(tmp_path)
    found = rows[rows["slo_attainment"] >= 0.8].groupby("seed")[RATE].max()
    best = Scenario.load(tmp_path / "best.yaml")
    assert best.workload.arrivals.rate == found.min() and best.replications == len(found) == 3


def test_a_best_setting_says_whom_it_did_not_serve(tmp_path: Path) -> None:
    """Of least latency is the server that turns the long requests away."""
    knobs = {"engine.num_kv_blocks": [30, 2500]}
    output = sweep(written(tmp_path, knobs=knobs, best={"minimise": "p99_e2el_ms"}), tmp_path)
    assert "not served (%)" in output
    row = table(tmp_path).set_index("engine.num_kv_blocks").loc[30]
    share = 100 * row["rejected"] / 20
    assert (
        0 < share < 100 and f"; {share:.1f} % of its requests were not served" in (tmp_path / "best.yaml").read_text()
    )


def test_a_load_too_short_to_find_a_rate_that_is_too_much_is_said(tmp_path: Path) -> None:
    search = {"kind": "max_goodput", "max_simulations": 3}
    changes = {"workload.num_requests": 1, "slo.ttft": 100.0, "slo.tpot": 100.0}
    output = sweep(written(tmp_path, set=changes, knobs={KIND: ["fcfs"]}, search=search), tmp_path)
    assert "fcfs: no rate up to 24 was too much; more requests may tell" in output
    assert not (tmp_path / "best.yaml").exists()


def test_a_server_that_keeps_the_slos_at_no_rate_is_said(tmp_path: Path) -> None:
    search = {"kind": "max_goodput", "max_simulations": 3}
    output = sweep(written(tmp_path, set={"slo.ttft": 1e-4}, knobs={KIND: ["fcfs"]}, search=search), tmp_path)
    assert "fcfs: no rate down to 1.5 was good" in output


@pytest.mark.parametrize("file", sorted(Path("scenarios/sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sweep_that_comes_along_is_sound(file: Path) -> None:
    loaded = Sweep.load(file)
    asked = next(search_of(Points(loaded)).rounds())
    assert asked and not any(point.reason for point in asked)
    assert file.read_text().startswith("# ")
