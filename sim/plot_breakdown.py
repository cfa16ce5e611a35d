"""What the first token waited for: the mean parts of the TTFT, one bar a variant."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.latencies import Floats, mean_ttft_parts
from sim.plot_style import FAINT, INK, STAGES, figure, label, legend_below_headline, number, thousands
from sim.plotted import PlottedRun, Runs, ensemble_of, named

SELDOM = ("transfer", "delivery")  # parts that most runs have not


def ttft_breakdown(runs: Runs) -> Figure:
    """One stacked bar a variant: the mean of each part of the TTFT. The parts add up to the mean TTFT."""
    subtitle = "Mean parts of the time to first token, over the requests that got one"
    height = 1.85 + 0.42 * max(len(runs), 1)
    title = named("Where the time to first token goes", runs)
    fig, (ax,) = figure(title, subtitle, 1, 1, height, left=0.16, top=1 - 1.2 / height)
    label(ax, x="ms")
    for row, (_, run) in enumerate(runs):
        _stacked_bar(ax, row, run)
    ax.set_yticks(range(len(runs)), [variant for variant, _ in runs])
    ax.set_ylim(len(runs) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlim(0, (ax.dataLim.x1 if ax.dataLim.x1 > 0 else 1.0) * 1.1)
    thousands(ax, "x")
    for part, (name, color) in STAGES.items():
        if part not in SELDOM or any(run.requests[part].any() for _, run in runs):
            ax.barh([0], [0], color=color, label=name)
    legend_below_headline(fig, *ax.get_legend_handles_labels(), columns=4)
    return fig


def _stacked_bar(ax: Axes, row: int, run: PlottedRun) -> None:
    parts = _parts(run)
    if parts is None:
        ax.text(0, row, " no request got a first token", size=8, color=FAINT, va="center")
        return
    left = np.cumsum(parts) - parts
    ax.barh(np.full(len(parts), row), parts, left=left, height=0.62, color=[color for _, color in STAGES.values()])
    ax.text(parts.sum(), row, f"  {number(parts.sum())} ms", size=8.5, color=INK, va="center")


def _parts(run: PlottedRun) -> Floats | None:
    """Milliseconds of each stage, of all runs that it stands for."""
    ensemble = ensemble_of(run)
    if ensemble is None:
        return mean_ttft_parts(run, list(STAGES))
    return np.array([ensemble.parts[stage] for stage in STAGES]) if ensemble.parts else None
