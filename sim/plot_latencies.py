"""How the latencies of variants are distributed, and how their tails differ."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

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
from sim.plotted import PlottedRun, Runs, named
from sim.samples import WeightedSample

Floats = NDArray[np.float64]
Sampled = list[tuple[dict[str, Any], WeightedSample]]  # those that are not empty, with the style of their line

LATENCIES = {
    "ttft": "Time to first token (TTFT)",
    "itl": "Gap between tokens (ITL)",
    "tpot": "Time per output token (TPOT)",
    "e2el": "End to end (E2E)",
}
PANEL, GAP = 1.75, 0.85  # inches: height of a panel, and between two
LOG_RATIO = 20.0  # from this spread on, a logarithmic axis
MAX_LISTED = 7  # percentiles beside the curves; more would cover them
TAIL = 0.2  # the tail is the slowest fifth
RAREST = 1e-4  # shares below are not drawn
# shares at which a long curve is drawn: evenly, so that steep parts keep their shape, and closer towards the tail
DRAWN = np.concatenate([np.linspace(0, 1 - TAIL, 300), 1 - np.geomspace(TAIL, RAREST / 10, 300), [1.0]])


def latency_cdfs(runs: Runs, names: Sequence[str] = tuple(LATENCIES)) -> Figure:
    """A row each for TTFT, ITL, TPOT and end to end: the distribution, and its tail; one line a variant."""
    subtitle = (
        "Left: share of requests (of gaps, for ITL) at or below a latency. Right: share above it, the slowest fifth"
    )
    legend_lines = -(-(len(runs) + 1) // 4)
    top = 1.05 + 0.2 * legend_lines
    height = top + len(names) * PANEL + (len(names) - 1) * GAP + 0.55
    title, hspace = named("Latency distributions", runs), GAP / PANEL
    fig, axes = figure(title, subtitle, len(names), 2, height, top=1 - top / height, hspace=hspace, wspace=0.16)
    for left, right, name in zip(axes[::2], axes[1::2], names, strict=True):
        _row(left, right, name, runs)
    lines: list[Artist] = [Line2D([], [], **line_style(index, len(runs))) for index in range(len(runs))]
    words = [f"{variant} ({int((run.requests['status'] == 'finished').sum()):,} finished)" for variant, run in runs]
    legend_below_headline(fig, [*lines, Line2D([], [], **DASHED)], [*words, "SLO"], 4)
    return fig


def cdf_panel(ax: Axes, name: str, runs: Runs) -> None:
    """One distribution by itself, with the objectives that lie among its data."""
    sampled = _sampled(name, runs)
    label(ax, title=LATENCIES[name], x="ms")
    ax.set_ylim(0, 1.02)
    if not sampled:
        say(ax, "nothing to show")
        return
    _curves(ax, sampled, lambda shares: shares, 50, "lower right")
    _scale(ax, sampled, 0, 100)
    low, high = ax.get_xlim()
    for bound in {bound * 1e3 for _, run in runs if (bound := getattr(run.slo, name)) is not None}:
        if low <= bound <= high:
            ax.axvline(bound, **DASHED)


def _sampled(name: str, runs: Runs) -> Sampled:
    samples = [(line_style(index, len(runs)), latencies(run, name)) for index, (_, run) in enumerate(runs)]
    return [(style, sample) for style, sample in samples if sample.size]


def _row(left: Axes, right: Axes, name: str, runs: Runs) -> None:
    sampled = _sampled(name, runs)
    label(left, title=LATENCIES[name], x="ms", y="share at or below")
    label(right, title=f"{LATENCIES[name]}: the tail", x="ms", y="share above")
    left.set_ylim(0, 1.02)
    log(right, "y")
    rarest = max(min((1 / sample.size for _, sample in sampled), default=0.01), RAREST)
    right.set_ylim(min(rarest, TAIL / 4) * 0.9, TAIL)
    if not sampled:
        say(left, "nothing to show")
        say(right, "nothing to show")
        return
    _curves(left, sampled, lambda shares: shares, 50, "lower right")
    _curves(right, sampled, lambda shares: np.maximum(1 - shares, RAREST / 100), 99, "upper right")
    _scale(left, sampled, 1, 100)
    _scale(right, sampled, 100 * (1 - TAIL), 100 if rarest > RAREST else 100 * (1 - RAREST))
    _bounds(left, right, sorted({bound * 1e3 for _, run in runs if (bound := getattr(run.slo, name)) is not None}))


def latencies(run: PlottedRun, name: str) -> WeightedSample:
    """The finished requests' latencies; for ITL, all gaps."""
    if name == "itl":
        return run.itl_sample
    seconds = run.requests.loc[run.requests["status"] == "finished", name].dropna().to_numpy(float)
    values = np.rint(seconds * 1e9).astype(np.int64)
    return WeightedSample(values, np.ones_like(values))


def curve(sample: WeightedSample) -> tuple[Floats, Floats]:
    """Steps of a CDF that is not empty, from 0 up, in milliseconds; of a long one, as many as show."""
    values, shares = sample.cdf()
    if len(values) > len(DRAWN):
        kept = np.unique(np.searchsorted(shares, DRAWN).clip(0, len(values) - 1))
        values, shares = values[kept], shares[kept]
    return np.append(values[0], values) * 1e3, np.append(0.0, shares)


def _curves(ax: Axes, sampled: Sampled, height: Callable[[Floats], Floats], q: int, corner: str) -> None:
    """With a percentile of each in a corner that the curves leave free."""
    for style, sample in sampled:
        x, shares = curve(sample)
        words = number(sample.percentile(q) / 1e6)
        ax.plot(x, height(shares), drawstyle="steps-post", label=words, **style)
    if len(sampled) <= MAX_LISTED:
        place = {"loc": corner, "title": f"p{q} (ms)", "title_fontsize": 8, "handlelength": 2.4, "labelspacing": 0.25}
        ax.legend(**LEGEND | place | {"frameon": True, "framealpha": 0.7, "edgecolor": "white", "borderpad": 0.2})


def _scale(ax: Axes, sampled: Sampled, lowest: float, highest: float) -> None:
    """From one percentile to another of all variants together."""
    low = min(sample.percentile(lowest) / 1e6 for _, sample in sampled)
    high = max(sample.percentile(highest) / 1e6 for _, sample in sampled)
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
