"""Plots of ordinary and of odd runs: files are made, without warnings and without dates."""

from pathlib import Path

import numpy as np
import pytest
from frames import Run, gaps, iterations, requests
from matplotlib.figure import Figure

from policies.limits import Limits
from sim.binning import MAX_BINS, binned
from sim.plots import iteration_timeline, latency_cdfs, request_gantt, stalls, ttft_breakdown, write_plots
from sim.samples import WeightedSample
from sim.slo import SLO

COMPARISONS = {"latency_cdfs", "ttft_breakdown", "stalls"}
SINGLE = {"iteration_timeline", "occupancy"}


def busy(num_requests: int = 80, num_iterations: int = 2000) -> Run:
    rng = np.random.default_rng(1)
    durations = rng.lognormal(-4, 1, num_iterations)
    ends = np.cumsum(durations)
    batches = iterations(
        ends.tolist(),
        encode=durations / 2,
        encoder_tokens=rng.integers(0, 5000, num_iterations),
        num_prefill_tokens=rng.integers(0, 2000, num_iterations),
        num_decodes=rng.integers(0, 64, num_iterations),
        kv_blocks_used=rng.integers(0, 900, num_iterations),
        encoder_rows_resident=rng.integers(500, 900, num_iterations),
        num_running=rng.integers(0, 64, num_iterations),
    )
    arrivals = np.sort(rng.uniform(0, ends[-1] / 2, num_requests))
    table = requests([[arrival, *(arrival + np.cumsum(rng.exponential(0.2, 9)))] for arrival in arrivals])
    limits = Limits(num_kv_blocks=1000, encoder_max_num_tokens=4096, encoder_cache_rows="unbounded")
    itl = WeightedSample(np.rint(durations * 1e9).astype(np.int64), batches["num_decodes"].to_numpy())
    return Run(table, batches, itl, SLO(ttft=0.5, tpot=0.1, itl=0.05, e2el=3), limits)


ODD_RUNS = {
    "nothing": Run(requests([]), iterations([]), gaps()),
    "unfinished": Run(
        requests([[0.0], [1.0]], status=["stalled", "unfinished"]), iterations([1.0]), gaps(), SLO(itl=1)
    ),
    "one": Run(requests([[0, 0.5, 1.0]]), iterations([0.5, 1.0], num_decodes=[0, 1]), gaps(0.5), SLO(ttft=9, itl=0.1)),
    "instant": Run(requests([[0, 0.0]]), iterations([0.0]), gaps(0.0), SLO(ttft=1)),
    "rejected": Run(requests([[3.0]], status="rejected", reason="too long"), iterations([]), gaps()),
}


@pytest.mark.parametrize("name", ODD_RUNS)
def test_odd_runs_have_plots_too(name: str, tmp_path: Path) -> None:
    paths = write_plots([(name, ODD_RUNS[name])], tmp_path)
    assert {path.stem for path in paths} == COMPARISONS | SINGLE | {"request_gantt"}


def test_variants_share_the_comparisons(tmp_path: Path) -> None:
    runs = [("a/b 1", busy()), ("none", ODD_RUNS["nothing"])]
    paths = write_plots(runs, tmp_path / "new")
    single = {f"{name}-{label}" for name in SINGLE for label in ("a_b_1", "none")}
    assert {path.stem for path in paths} == COMPARISONS | single | {"request_gantt-none"}
    assert all(path.stat().st_size > 5000 for path in paths)
    assert sorted(paths) == sorted((tmp_path / "new").iterdir())  # nothing half-written is left


def test_an_interrupted_plot_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(fig: Figure, path: Path, **_: object) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_plots([("x", ODD_RUNS["nothing"])], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_labels_that_would_share_a_file_do_not(tmp_path: Path) -> None:
    paths = write_plots([("a b", ODD_RUNS["nothing"]), ("a/b", ODD_RUNS["nothing"])], tmp_path)
    assert len(set(paths)) == len(paths)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = (write_plots([("x", busy(30, 800))], tmp_path / name) for name in ("first", "again"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert not any(word in path.read_bytes() for path in first for word in (b"Software", b"Date", b"tIME"))


def test_stalls_of_all_variants_share_their_axes() -> None:
    slow = busy(num_iterations=300)
    slow.iterations["end"] += 0.5
    fig = stalls([("fast", busy()), ("slow", slow), ("none", ODD_RUNS["nothing"])])
    panels = [ax for ax in fig.axes if ax.get_visible()]
    assert len(panels) == 3
    assert len({ax.get_xlim() for ax in panels}) == len({ax.get_ylim()[0] for ax in panels}) == 1
    assert panels[0].get_ylim() == panels[1].get_ylim()


def test_a_far_off_objective_does_not_squeeze_the_latencies() -> None:
    run = ODD_RUNS["one"]
    fig = latency_cdfs([("one", run)])
    ttft, itl = fig.axes[0], fig.axes[2]
    assert ttft.get_xlim()[1] < 9000 and "SLO 9,000 ms →" in ttft.get_title("right")
    assert itl.get_xlim()[0] > 100 and "← SLO 100 ms" in itl.get_title("right")


def test_headlines_name_the_scenario() -> None:
    run = ODD_RUNS["one"]
    for fig in (latency_cdfs([("fcfs", run)]), stalls([("fcfs", run)]), ttft_breakdown([("fcfs", run)])):
        assert fig.texts[0].get_text().endswith(": run, simulated")
    assert iteration_timeline("fcfs", run).texts[0].get_text().endswith(": run, simulated, fcfs")
    assert iteration_timeline("run", run).texts[0].get_text().endswith(": run, simulated")


def test_whoever_got_no_first_token_waits_last() -> None:
    parts = {"encode": [0.5, 0.5], "encoder_budget_wait": [0.5, 2.5], "prefill": 0.0}
    table = requests([[0.0, 1.0, 2.0], [0.0]], status=["finished", "stalled"], **parts)
    fig = request_gantt("x", Run(table, iterations([3.0]), gaps()))
    starts = {
        lines.get_label(): [path.vertices[0, 0] for path in lines.get_paths()] for lines in fig.axes[0].collections
    }
    assert starts["encode"] == [0.5, 0.0] and starts["encoder budget or rows"] == [0.0, 0.5]


def test_a_window_shows_a_part() -> None:
    fig = iteration_timeline("x", busy(), window=(1.0, 2.0))
    low, high = fig.axes[0].get_xlim()
    assert low <= 1.0 and high >= 2.0 and high - low < 3


def test_bins_keep_time_peaks_and_idle_gaps() -> None:
    batches = busy(num_iterations=9000).iterations
    late = batches.index >= 5000
    batches.loc[late, ["start", "end"]] += 50.0
    tokens = batches["encoder_tokens"].to_numpy(float)
    bins = binned(batches, {"tokens": tokens})
    assert len(bins.edges) <= 2 * MAX_BINS and (np.diff(bins.edges) >= 0).all()
    assert bins.edges[0] == batches["start"].iloc[0] and bins.edges[-1] == batches["end"].iloc[-1]
    assert bins.peak["tokens"].max() == tokens.max() and (bins.mean["tokens"] <= bins.peak["tokens"] + 1e-6).all()
    assert bins.idle.sum() == 1 and bins.mean["tokens"][bins.idle] == 0
    area = float(bins.mean["tokens"] @ np.diff(bins.edges))
    assert area == pytest.approx(float(tokens @ (batches["end"] - batches["start"])))
