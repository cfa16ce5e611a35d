"""Simulated over measured: how latencies are distributed in both, and what each iteration took against its price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from sim.compare import Comparison
from sim.compare_forced import Stage
from sim.latencies import latencies
from sim.plot_curves import steps
from sim.plot_latencies import TITLES
from sim.plot_style import (
    BLUE,
    DASHED,
    FAINT,
    LEGEND,
    SKY,
    VERMILION,
    figure,
    label,
    legend_below_headline,
    log,
    number,
    save,
    say,
)
from sim.plots import suffixes
from sim.samples import WeightedSample

MEASURED: dict[str, Any] = {"color": VERMILION, "linewidth": 2.6}
SIMULATED: dict[str, Any] = {"color": BLUE, "linewidth": 1.3}
MOST_POINTS = 4000  # of a stage; more would only cover each other
STAGES = {
    "encoder": "Encoder",
    "prefill": "Prefill only",
    "decode": "Decode only",
    "mixed": "Prefill and decode",
    "host": "Host",
}


def write_comparison_plots(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Into `folder`, and say where; of several variants the names end in `-<label>`."""
    ends = suffixes([comparison.label for comparison in comparisons])
    return [
        save(fig, folder / f"{name}{end}.png")
        for comparison, end in zip(comparisons, ends, strict=True)
        for name, fig in _figures(comparison)
    ]


def _figures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    yield "compare_cdfs", overlay(comparison)
    yield "compare_parity", parity(comparison)


def _named(what: str, comparison: Comparison) -> str:
    aside = f", {comparison.label}" if comparison.label else ""
    return f"{what}: {comparison.run.about['name']}{aside}"


def overlay(comparison: Comparison) -> Figure:
    """CDFs of TTFT and ITL, the simulation's thin line over the live run's thick one."""
    subtitle = f"Share of requests (of gaps, for ITL) at or below a latency; the live clock: {comparison.live.clock}"
    fig, axes = figure(_named("Simulated over measured", comparison), subtitle, 1, 2, 4.2, top=1 - 1.25 / 4.2)
    for ax, name in zip(axes, ("ttft", "itl"), strict=True):
        label(ax, title=TITLES[name], x="ms", y="share at or below")
        _cdfs(ax, name, comparison)
    lines = [Line2D([], [], **MEASURED), Line2D([], [], **SIMULATED)]
    legend_below_headline(fig, lines, ["measured", "simulated"], 2)
    return fig


def _cdfs(ax: Axes, name: str, comparison: Comparison) -> None:
    samples = [(MEASURED, _measured(comparison, name)), (SIMULATED, latencies(comparison.simulated.run, name))]
    drawn = [(style, sample) for style, sample in samples if sample is not None and sample.size]
    if len(drawn) < len(samples):
        say(ax, "nothing to show: the twin is not identical" if comparison.measured is None else "nothing to show")
        return
    ax.set_ylim(0, 1.02)
    for style, sample in drawn:
        x, y = steps(sample)
        ax.plot(x, y, drawstyle="steps-post", label=f"p99 {number(sample.percentile(99) / 1e6)} ms", **style)
    low, high = ax.get_xlim()
    if low > 0 and high / low > 20:
        log(ax, "x")
    ax.legend(loc="lower right", **LEGEND)


def _measured(comparison: Comparison, name: str) -> WeightedSample | None:
    return None if comparison.measured is None else latencies(comparison.measured, name)


def parity(comparison: Comparison) -> Figure:
    """A panel a stage: the price of each iteration against what it took, with the noise around equality."""
    stages = comparison.forced.stages
    names = [name for name in STAGES if name in stages] or ["decode"]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    height = 1.3 + 3.2 * rows + 0.4
    subtitle = f"Every iteration of the live plans, priced by {comparison.profile_name}; both in ms"
    title = _named("Predicted against measured", comparison)
    fig, axes = figure(title, subtitle, rows, columns, height, top=1 - 1.3 / height, hspace=0.36, wspace=0.24)
    for ax, name in zip(axes, names, strict=False):
        label(ax, title=STAGES[name], x="measured", y="predicted")
        _parity(ax, stages.get(name))
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    key = [Line2D([], [], linestyle="", marker="o", color=BLUE, markersize=3), Line2D([], [], **DASHED)]
    legend_below_headline(fig, [*key, Patch(color=SKY, alpha=0.35)], ["an iteration", "equal", "twice the noise"], 3)
    return fig


def _parity(ax: Axes, stage: Stage | None) -> None:
    some = None if stage is None else (stage.measured > 0) & (stage.predicted > 0)
    if stage is None or some is None or not some.any():
        say(ax, "nothing to show: no time, or no price")
        return
    measured, predicted = stage.measured[some] / 1e6, stage.predicted[some] / 1e6
    every = slice(None, None, -(-len(measured) // MOST_POINTS))
    ends = np.array([min(measured.min(), predicted.min()) / 1.3, max(measured.max(), predicted.max()) * 1.3])
    errors = stage.errors()
    if errors.noise_percent is not None:
        band = 2 * errors.noise_percent / 100
        ax.fill_between(ends, ends * max(1 - band, 0.01), ends * (1 + band), color=SKY, alpha=0.35, linewidth=0)
    ax.plot(ends, ends, **DASHED)
    ax.plot(measured[every], predicted[every], "o", color=BLUE, markersize=2.5, alpha=0.5, markeredgewidth=0)
    steps = (1.0, 2.0, 5.0) if ends[1] / ends[0] > 5 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    for which, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        log(ax, which)
        axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    words = "" if errors.error_percent is None else f"sum {errors.error_percent:+.1f} %"
    ax.text(0.97, 0.05, words, size=8, color=FAINT, ha="right", transform=ax.transAxes)
