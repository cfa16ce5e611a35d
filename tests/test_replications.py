"""Replications: successive seeds, means with Student's intervals, the same in one process as in several."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner, Result

import sim.replications
from cli import app
from sim import Run, run
from sim.student import half_width
from workloads.errors import InputError

TIGHT = "tests/data/scenario.yaml"
SMALL = {"workload.num_requests": 20}
RUN_FILES = ["iterations.parquet", "requests.parquet", "run.json", "scenario.yaml", "summary.json"]


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def tandem(out: Path, *sets: str, more: tuple[str, ...] = ()) -> Result:
    options = [word for text in ("workload.num_requests=20", *sets) for word in ("--set", text)]
    return CliRunner().invoke(app, ["run", TIGHT, "--out", str(out), *options, *more], catch_exceptions=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_half_width_is_students() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 * 1 / np.sqrt(3), rel=1e-6)  # t of 2 degrees, s = 1
    assert half_width([5.0, 5.0]) == 0.0
    assert half_width([5.0]) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_the_half_width_is_that_of_scipys_interval(values: list[float]) -> None:
    mean, error = np.mean(values), stats.sem(values)
    if error > 1e-9:
        high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error)[1]
        assert half_width(values) == pytest.approx(high - mean, rel=1e-6, abs=1e-9)


def test_replications_are_the_runs_with_the_next_seeds() -> None:
    r = run(TIGHT, SMALL | {"replications": 3})
    alone = [run(TIGHT, SMALL | {"seed": seed}).summary for seed in (1, 2, 3)]
    assert r.ensemble is not None and r.summary["replications"]["seeds"] == [1, 2, 3]
    for name in ("mean_ttft_ms", "p99_itl_ms", "request_throughput", "num_iterations"):
        values = [summary[name] for summary in alone]
        assert r.summary[name] == pytest.approx(np.mean(values))
        assert r.ensemble.half_widths[name] == pytest.approx(half_width(values))
        assert r.ensemble.table[name].tolist() == values
    assert r.summary["completed"] == 20 and isinstance(r.summary["completed"], int)
    pd.testing.assert_frame_equal(r.requests, run(TIGHT, SMALL).requests)


def test_what_one_member_has_not_has_no_mean() -> None:
    r = run(TIGHT, SMALL | {"replications": 2, "workload.output_tokens": 1})
    assert r.summary["mean_tpot_ms"] is None and r.intervals["mean_tpot_ms"] is None


def test_each_replication_has_a_folder_and_all_have_a_table(tmp_path: Path) -> None:
    result = tandem(tmp_path, "replications=3")
    assert result.exit_code == 0, result.output
    top = ["plots", "replications.parquet", "run.json", "scenario.yaml", "seed-1", "seed-2", "seed-3", "summary.json"]
    assert names(tmp_path) == top
    assert all(names(tmp_path / f"seed-{seed}") == RUN_FILES for seed in (1, 2, 3))
    assert "latency_cdfs.png" in names(tmp_path / "plots")
    assert "means of 3 runs" in result.output and " ± " in result.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    table = pd.read_parquet(tmp_path / "replications.parquet")
    assert summary["p99_ttft_ms"] == pytest.approx(table["p99_ttft_ms"].mean())
    assert summary["replications"]["number"] == 3 and table["seed"].tolist() == [1, 2, 3]
    assert json.loads((tmp_path / "run.json").read_text())["replications"] == {"seeds": [1, 2, 3], "wanted": 3}


def test_a_replications_scenario_runs_to_its_tables_and_that_of_all_to_their_figures(tmp_path: Path) -> None:
    tandem(tmp_path / "a", "replications=2", more=("--no-plots",))
    for part in (".", "seed-2"):
        again = ["run", str(tmp_path / "a" / part / "scenario.yaml"), "--no-plots", "--out", str(tmp_path / "b" / part)]
        assert CliRunner().invoke(app, again).exit_code == 0
    for name in ("summary.json", "seed-2/summary.json", "seed-2/requests.parquet", "seed-2/run.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_one_run_takes_the_place_of_several_and_the_other_way_round(tmp_path: Path) -> None:
    own = tmp_path / "seed-2" / "notes.txt"
    tandem(tmp_path, "replications=2", more=("--no-plots",))
    own.write_text("mine")
    tandem(tmp_path, more=("--no-plots",))
    assert names(tmp_path) == [*RUN_FILES[:4], "seed-2", "summary.json"] and names(own.parent) == ["notes.txt"]
    tandem(tmp_path, "replications=2", more=("--no-plots",))
    assert "requests.parquet" not in names(tmp_path) and names(tmp_path / "seed-1") == RUN_FILES


def test_compare_asks_for_one_of_several(tmp_path: Path) -> None:
    tandem(tmp_path, "replications=2", more=("--no-plots",))
    result = CliRunner().invoke(app, ["compare", str(tmp_path), str(tmp_path)])
    assert result.exit_code == 2 and "holds several runs; compare one of them, as " in result.stderr


def interrupting(after: int, simulate: Callable[..., Run]) -> Callable[..., Run]:
    runs = []

    def interrupted(*args: object, **options: object) -> Run:
        runs.append(args)
        if len(runs) > after:
            raise KeyboardInterrupt
        return simulate(*args, **options)

    return interrupted


def test_an_interrupt_keeps_the_replications_that_were_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the first run is the command's own, the others are made here
    monkeypatch.setattr(sim.replications, "simulate_resolved", interrupting(2, sim.replications.simulate_resolved))
    result = tandem(tmp_path, "replications=8", more=("--jobs", "1"))
    assert result.exit_code == 130
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["partial"] is True and about["replications"] == {"seeds": [1, 2, 3], "wanted": 8}
    assert pd.read_parquet(tmp_path / "replications.parquet")["seed"].tolist() == [1, 2, 3]
    assert not (tmp_path / "plots").exists() and "interrupted: what had finished is marked partial" in result.output


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="has no /proc to look for processes")
def test_processes_give_what_one_gives_and_end_with_an_interrupt(tmp_path: Path) -> None:
    options = ["--no-plots", "--jobs", "2", "--set", "replications=5000", "--out", str(tmp_path)]
    command = [sys.executable, "-c", "import cli; cli.app()", "run", TIGHT, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        while process.poll() is None and not (tmp_path / "seed-3" / "run.json").exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130 and "Traceback" not in output, output
    assert json.loads((tmp_path / "run.json").read_text())["partial"] is True
    while living(process.pid):  # whatever looks after the processes' memory ends after them, by itself
        time.sleep(0.05)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "seed-3/requests.parquet"), run(TIGHT, {"seed": 3}).requests
    )


def living(session: int) -> list[str]:
    """Processes of the session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            found += [stat.parent.name] if int(its_session) == session and state != "Z" else []
    return found


@pytest.mark.parametrize("number", [0, 1.5, 20_000])
def test_wrong_numbers_are_one_line(number: float) -> None:
    with pytest.raises(InputError, match="replications"):
        run(TIGHT, {"replications": number})
