"""How the latencies of variants are distributed, and how their tails differ."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sim.latencies import RAREST, TAIL
from sim.plot_curves import Curve, curve_of
from sim.plot_style import (
    DASHED,
    INK,
    LEGEND,
    figure,
    label,
    legend_below_headline,
    line_style,
    log,
    number,
    say,
    thousands,
)
from sim.plotted import PlottedRun, Runs, ensemble_of, named

Floats = NDArray[np.float64]
Drawn = list[tuple[dict[str, Any], Curve]]  # those that are not empty, with the style of their line

TITLES = {
    "ttft": "Time to first token (TTFT)",
    "itl": "Gap between tokens (ITL)",
    "tpot": "Time per output token (TPOT)",
    "e2el": "End to end (E2E)",
}
PANEL, GAP = 1.75, 0.85  # inches: height of a panel, and between two
LOG_RATIO = 20.0  # from this spread on, a logarithmic axis
MAX_LISTED = 7  # percentiles beside the curves; more would cover them
BANDS = 4  # more would hide one another


def latency_cdfs(runs: Runs) -> Figure:
    """A row each for TTFT, ITL, TPOT and end to end: the distribution, and its tail; one line a variant."""
    subtitle = (
        "Left: share of requests (of gaps, for ITL) at or below a latency. Right: share above it, the slowest fifth"
    )
    if any(ensemble_of(run) for _, run in runs):
        subtitle += ". Shaded: 95 % of the runs"
    legend_lines = -(-(len(runs) + 1) // 4)
    top = 1.05 + 0.2 * legend_lines
    height = top + 4 * PANEL + 3 * GAP + 0.55
    title, hspace = named("Latency distributions", runs), GAP / PANEL
    fig, axes = figure(title, subtitle, 4, 2, height, top=1 - top / height, hspace=hspace, wspace=0.16)
    for left, right, name in zip(axes[::2], axes[1::2], TITLES, strict=True):
        _row(left, right, name, runs)
    lines: list[Artist] = [Line2D([], [], **line_style(index, len(runs))) for index in range(len(runs))]
    words = [f"{variant} ({_size(run)})" for variant, run in runs]
    legend_below_headline(fig, [*lines, Line2D([], [], **DASHED)], [*words, "SLO"], 4)
    return fig


def _size(run: PlottedRun) -> str:
    ensemble = ensemble_of(run)
    if ensemble is not None:
        return f"{len(ensemble.members):,} runs"
    return f"{int((run.requests['status'] == 'finished').sum()):,} finished"


def _row(left: Axes, right: Axes, name: str, runs: Runs) -> None:
    drawn = [
        (line_style(index, len(runs)), curve)
        for index, (_, run) in enumerate(runs)
        if (curve := curve_of(run, name)) is not None
    ]
    label(left, title=TITLES[name], x="ms", y="share at or below")
    label(right, title=f"{TITLES[name]}: the tail", x="ms", y="share above")
    left.set_ylim(0, 1.02)
    log(right, "y")
    rarest = max(min((1 / curve.size for _, curve in drawn), default=0.01), RAREST)
    right.set_ylim(min(rarest, TAIL / 4) * 0.9, TAIL)
    if not drawn:
        say(left, "nothing to show")
        say(right, "nothing to show")
        return
    _curves(left, drawn, lambda shares: shares, 50, "lower right")
    _curves(right, drawn, lambda shares: np.maximum(1 - shares, RAREST / 100), 99, "upper right")
    _scale(left, drawn, 1, 100)
    _scale(right, drawn, 100 * (1 - TAIL), 100 if rarest > RAREST else 100 * (1 - RAREST))
    _bounds(left, right, sorted({bound * 1e3 for _, run in runs if (bound := getattr(run.slo, name)) is not None}))


def _curves(ax: Axes, drawn: Drawn, height: Callable[[Floats], Floats], q: int, corner: str) -> None:
    """With a percentile of each in a corner that the curves leave free."""
    for style, curve in drawn:
        if curve.band is not None and len(drawn) <= BANDS:
            ax.fill_betweenx(height(curve.shares), *curve.band, color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(curve.x, height(curve.shares), drawstyle="steps-post", label=curve.words(q), **style)
    if len(drawn) <= MAX_LISTED:
        place = {"loc": corner, "title": f"p{q} (ms)", "title_fontsize": 8, "handlelength": 2.4, "labelspacing": 0.25}
        ax.legend(**LEGEND | place | {"frameon": True, "framealpha": 0.7, "edgecolor": "white", "borderpad": 0.2})


def _scale(ax: Axes, drawn: Drawn, lowest: float, highest: float) -> None:
    """From one percentile to another of all variants together."""
    low = min(curve.percentile(lowest) for _, curve in drawn)
    high = max(curve.percentile(highest) for _, curve in drawn)
    if low > 0 and high / low > LOG_RATIO:
        log(ax, "x")
        ax.set_xlim(low / 1.3, high * 1.3)
    else:
        thousands(ax, "x")
        start = 0.0 if low < high / 3 else low
        margin = 0.04 * (high - start) if high - start > 0.01 * high else 0.1 * high
        ax.set_xlim(max(start - margin, 0.0), high + margin if high > 0 else 1.0)


def _bounds(left: Axes, right: Axes, bounds: list[float]) -> None:
    """A line where it lies among the data; else its number and an arrow."""
    words = []
    for bound in bounds:
        low, high = left.get_xlim()
        before, after = "← " if bound < low else "", " →" if bound > high else ""
        words.append(f"{before}SLO {number(bound)} ms{after}")
        for ax in (left, right):
            if ax.get_xlim()[0] <= bound <= ax.get_xlim()[1]:
                ax.axvline(bound, **DASHED)
    left.set_title(", ".join(words), loc="right", size=8, color=INK, pad=6)
