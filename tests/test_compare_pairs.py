"""Two runs side by side: two simulations, several of each, and a simulation beside what a benchmark measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cli import app
from sim.client_view import Seen, client_view
from sim.compare_free import Figure, Side, free
from sim.compare_pair import compare_pair, is_significant, same_requests
from sim.compare_pair_tables import _span
from sim.compare_pairs import pairs
from sim.compare_seeds import _figure
from sim.measured_output import write_measured
from sim.student import welch_half_width
from sim.variant_folders import runs_of

TIGHT = "tests/data/scenario.yaml"
MILLISECOND = 10**6


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def simulated(out: Path, *sets: str) -> Path:
    options = [word for text in sets for word in ("--set", text)]
    result = tandem("run", TIGHT, "--out", out, "--no-plots", *options)
    assert result.exit_code == 0, result.output
    return out


def compared(*arguments: str | Path) -> str:
    result = tandem("compare", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_two_simulations_say_what_changed_and_by_how_much(tmp_path: Path) -> None:
    first, second = simulated(tmp_path / "a"), simulated(tmp_path / "b", "policy.kind=unbudgeted")
    output = compared(first, second)
    assert output.startswith("policy.kind: head_of_line -> unbudgeted\n")
    assert "20 requests that finished in both, compared one by one" in output
    assert "of one run each" in output
    content = json.loads((second / "compare.json").read_text())
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (first, second)]
    for name, figure in content["figures"].items():
        before, after = (summary[name] for summary in summaries)
        assert (figure["first"], figure["second"]) == pytest.approx((before, after)), name
        assert figure["change_percent"] == pytest.approx(100 * (after / before - 1)), name
    assert content["changes"]["policy.kind"] == ["head_of_line", "unbudgeted"]
    assert content["paired"] is True
    assert (second / "plots" / "compare_cdfs.png").exists()


def test_a_run_is_as_itself(tmp_path: Path) -> None:
    folder = simulated(tmp_path)
    pair = compare_pair(folder, folder)
    assert pair.changes == {} and pair.paired
    assert all(figure.error_percent == 0 for figure in pair.free.figures.values())
    assert not any(is_significant(figure) for figure in pair.free.figures.values())


def test_other_requests_are_not_compared_one_by_one(tmp_path: Path) -> None:
    first, second = simulated(tmp_path / "a"), simulated(tmp_path / "b", "seed=2")
    output = compared(first, second, "--no-plots")
    assert "seed: 1 -> 2" in output and "other requests in each" in output
    assert json.loads((second / "compare.json").read_text())["paired"] is False


def test_variants_are_compared_with_those_of_the_same_name(tmp_path: Path) -> None:
    first = simulated(tmp_path / "a", "policy.kind=fcfs,footprint")
    second = simulated(tmp_path / "b", "policy.kind=fcfs,footprint", "engine.num_kv_blocks=3000")
    output = compared(first, second)
    assert "fcfs:\nengine.num_kv_blocks: 2500 -> 3000" in output
    assert sorted(json.loads((second / "compare.json").read_text())["variants"]) == ["fcfs", "footprint"]
    assert {path.name for path in (second / "plots").iterdir()} == {
        "compare_cdfs-fcfs.png",
        "compare_cdfs-footprint.png",
    }


def test_replications_are_compared_seed_by_seed(tmp_path: Path) -> None:
    first = simulated(tmp_path / "a", "replications=3")
    second = simulated(tmp_path / "b", "replications=3", "policy.kind=unbudgeted")
    output = compared(first, second)
    assert "3 runs against 3, the same seeds, compared seed by seed" in output
    assert "of one run each" not in output
    figure = json.loads((second / "compare.json").read_text())["figures"]["mean_ttft_ms"]
    tables = [pd.read_parquet(folder / "replications.parquet")["mean_ttft_ms"] for folder in (first, second)]
    difference = (tables[1] - tables[0]).to_numpy()
    half = 4.302652729911275 * difference.std(ddof=1) / 3**0.5  # Student's t with 2 degrees of freedom, from tables
    ends = [100 * (difference.mean() + sign * half) / tables[0].mean() for sign in (-1, 1)]
    assert figure["interval_percent"] == pytest.approx(ends)
    assert figure["change_percent"] == pytest.approx(100 * difference.mean() / tables[0].mean())


def test_several_runs_and_one_do_not_go_together(tmp_path: Path) -> None:
    several, one = simulated(tmp_path / "a", "replications=2"), simulated(tmp_path / "b")
    for pair in ((several, one), (one, several)):
        result = tandem("compare", *pair)
        assert result.exit_code == 2
        assert f"{several}: holds several runs, {one} one" in result.stderr


def test_what_the_seeds_have_in_common_cancels_out() -> None:
    first, second = np.array([10.0, 20.0, 30.0]), np.array([11.0, 21.5, 31.5])
    together, apart = _figure(first, second, True), _figure(first, second, False)
    assert together.error_percent == apart.error_percent == pytest.approx(100 * (4 / 3) / 20)
    assert is_significant(together) and not is_significant(apart)
    assert _figure(first[:1], second[:1], True).interval_percent is None


def test_welch_by_hand() -> None:
    """Variances 1 and 8, of 3 and 5 values: those of the means are 1/3 and 8/5."""
    ours, theirs = [1.0, 2.0, 3.0], [0.0, 4.0, 4.0, 4.0, 8.0]
    own, other = 1 / 3, 8 / 5
    degrees = (own + other) ** 2 / (own**2 / 2 + other**2 / 4)
    assert degrees == pytest.approx(5.3738, abs=1e-4)
    half = welch_half_width(ours, theirs)
    assert half is not None
    assert half / (own + other) ** 0.5 == pytest.approx(2.5177, abs=2e-3)  # between t of 5 and 6: 2.571, 2.447


def measured(folder: Path, view: Any, factor: float) -> Path:
    """A benchmark of the same requests on a server that takes `factor` times as long."""
    rows = view.requests.to_dict("records")
    seen = [
        Seen(
            round(row["arrival"] * 1e9),
            int(row["prompt_tokens"]),
            int(row["output_tokens"]),
            round(row["ttft"] * 1e9 * factor),
            round(row["e2el"] * 1e9 * factor),
        )
        for row in rows
    ]
    write_measured(client_view("a test", "server", seen), folder)
    return folder


def test_a_simulation_is_compared_with_what_a_benchmark_measured(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    other = measured(tmp_path / "server", compare_pair(run, run).views[0], 2.0)
    output = compared(run, other)
    assert "20 requests that finished in both, compared one by one" in output
    assert "no ITL: of one of both nobody knows when each token came" in output
    figures = json.loads((other / "compare.json").read_text())["free_running"]["figures"]
    for name in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p50_e2el_ms"):
        assert figures[name]["error_percent"] == pytest.approx(-50, abs=1e-3), name
        assert figures[name]["interval_percent"] == pytest.approx([-50, -50], abs=1e-3)
    assert "mean_itl_ms" not in figures
    assert (other / "plots" / "compare_cdfs.png").exists()
    assert tandem("compare", other, run).exit_code == 2
    assert "the first folder is the simulated one" in tandem("compare", other, run).stderr


def test_the_same_requests_have_the_same_lengths() -> None:
    one = client_view("", "", [Seen(0, 10, 5, 1, 2), Seen(1, 20, 5, 1, 2)]).requests
    assert same_requests(one, one)
    assert not same_requests(one, one.assign(prompt_tokens=[10, 21]))
    assert not same_requests(one, one.head(1))
    assert not same_requests(one, one.assign(status="failed"))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(0, 5))
def test_other_requests_are_drawn_by_themselves(ours: int, theirs: int, seed: int) -> None:
    """The point estimate is the plain ratio; the interval holds it, or nearly so."""
    rng = np.random.default_rng([ours, theirs, seed])
    views = [
        client_view(
            "", "", [Seen(k * MILLISECOND, 9, 2, t, 2 * t) for k, t in enumerate(rng.integers(1, 9, n).tolist())]
        )
        for n in (ours, theirs)
    ]
    sides = [Side(view.requests, view.gaps) for view in views]
    found = free(*sides, warmup_requests=0, warmup=0.0, paired=False)
    figure: Figure = found.figures["mean_ttft_ms"]
    means = [view.requests["ttft"].mean() for view in views]
    assert figure.error_percent == pytest.approx(100 * (means[0] / means[1] - 1))
    assert found.num_requests == ours and found.num_left_out == 0
    assert figure.interval_percent is not None
    assert figure.interval_percent[0] <= figure.error_percent + 1e-9
    assert figure.interval_percent[1] >= figure.error_percent - 1e-9


def test_a_folder_stands_for_the_last_commands_variants(tmp_path: Path) -> None:
    """Whatever lay there before: a run of its own, or other variants."""
    out = simulated(tmp_path / "a")
    assert runs_of(out) == [out]
    simulated(out, "policy.kind=unbudgeted,fcfs")
    assert [path.name for path in runs_of(out)] == ["fcfs", "unbudgeted"]
    simulated(out, "policy.kind=unbudgeted,footprint")
    assert [path.name for path in runs_of(out)] == ["footprint", "unbudgeted"]
    assert (out / "run.json").exists() and (out / "fcfs" / "run.json").exists()  # nothing of anybody's is lost
    both = simulated(tmp_path / "b", "policy.kind=fcfs,footprint")
    assert [label for label, *_ in pairs(out, both).folders] == ["footprint"]
    result = tandem("report", out, "--out", tmp_path / "report.html")
    assert result.exit_code == 0 and "2 runs" in result.output
    simulated(out)
    assert runs_of(out) == [out]
    assert "requests that finished in both" in compared(out, simulated(tmp_path / "c", "policy.kind=fcfs"))


def test_who_was_not_served_is_said_before_the_figures(tmp_path: Path) -> None:
    all_of_them = simulated(tmp_path / "a")
    few = tmp_path / "b"
    tandem("run", TIGHT, "--out", few, "--no-plots", "--set", "engine.num_kv_blocks=30")
    status = pd.read_parquet(few / "requests.parquet").status.value_counts()
    assert 0 < status["finished"] < 20, status
    output = compared(all_of_them, few)
    assert f"{few}: {status['finished']} of 20 requests finished, {status['rejected']} rejected" in output
    assert "figures are of the requests compared, rates too" in output


@pytest.mark.parametrize(
    ("ends", "text"),
    [((0.02, 2.0), "+0.02 to +2.00"), ((-0.004, 3.0), "-0.004 to +3.000"), ((1.04, 2.0), "+1.0 to +2.0")],
)
def test_an_interval_shows_on_which_side_of_0_it_lies(ends: tuple[float, float], text: str) -> None:
    assert _span(*ends) == text
