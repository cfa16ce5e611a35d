"""Plots that set variants against each other: how latencies are distributed, and what the first token waited for."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.plot_style import (
    DASHED,
    DASHES,
    FAINT,
    INK,
    LEGEND,
    STAGES,
    VARIANTS,
    PlottedRun,
    Runs,
    figure,
    label,
    legend_above,
    log_x,
    number,
    say,
    thousands,
)
from sim.samples import WeightedSample

Floats = NDArray[np.float64]

LATENCIES = {
    "ttft": "Time to first token (TTFT)",
    "itl": "Gap between tokens (ITL)",
    "tpot": "Time per output token (TPOT)",
    "e2el": "End to end (E2E)",
}
PANEL = 2.3  # height in inches
LOG_RATIO = 20.0  # from this spread on, a logarithmic axis
MAX_POINTS = 1500  # of a curve; more cannot be told apart


def latency_cdfs(runs: Runs) -> Figure:
    """Four panels (TTFT, ITL, TPOT, end to end), one line a variant, the SLOs as vertical lines."""
    finished = sum(int((run.requests["status"] == "finished").sum()) for _, run in runs)
    subtitle = f"Share of requests (of gaps, for ITL) at or below a latency; finished requests: {finished:,}"
    legend = 0.19 * (len(runs) + 1)  # inches below a panel
    gap = 0.95 + legend
    height = 1.05 + 2 * PANEL + gap + 0.5 + legend
    foot, hspace = 0.5 + legend, gap / PANEL
    fig, axes = figure("Latency distributions", subtitle, 2, 2, height, foot=foot, hspace=hspace, wspace=0.16)
    for ax, name in zip(axes, LATENCIES, strict=True):
        _cdf_panel(ax, name, runs)
    return fig


def _cdf_panel(ax: Axes, name: str, runs: Runs) -> None:
    samples = [(variant, latencies(run, name)) for variant, run in runs]
    bounds = sorted({bound * 1e3 for _, run in runs if (bound := getattr(run.slo, name)) is not None})
    label(ax, title=LATENCIES[name], x="ms", y="share")
    ax.set_ylim(0, 1.02)
    if not any(sample.size for _, sample in samples):
        say(ax, "nothing to show")
        return
    for index, (variant, sample) in enumerate(samples):
        if sample.size:
            _curve(ax, variant, sample, VARIANTS[index % len(VARIANTS)], DASHES[index // len(VARIANTS) % len(DASHES)])
    _scale(ax, samples, bounds)
    for bound in bounds:
        ax.axvline(bound, **DASHED, label=f"SLO {number(bound)} ms")
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.40 / PANEL), borderaxespad=0, **LEGEND)


def latencies(run: PlottedRun, name: str) -> WeightedSample:
    """The finished requests' latencies; for ITL, all gaps."""
    if name == "itl":
        return run.itl_sample
    seconds = run.requests.loc[run.requests["status"] == "finished", name].dropna().to_numpy(float)
    values = np.rint(seconds * 1e9).astype(np.int64)
    return WeightedSample(values, np.ones_like(values))


def _curve(ax: Axes, variant: str, sample: WeightedSample, color: str, dash: str) -> None:
    values, shares = sample.cdf()
    if len(values) > MAX_POINTS:  # evenly over the shares, so that steep parts keep their shape
        kept = np.unique(np.searchsorted(shares, np.linspace(0, 1, MAX_POINTS)).clip(0, len(values) - 1))
        values, shares = values[kept], shares[kept]
    p50, p99 = (number(sample.percentile(q) / 1e6) for q in (50, 99))
    words = f"{variant}   p50 {p50}, p99 {p99} ms"
    x, y = np.append(values[0], values) * 1e3, np.append(0.0, shares)
    ax.plot(x, y, color=color, linestyle=dash, linewidth=1.6, drawstyle="steps-post", label=words)


def _scale(ax: Axes, samples: list[tuple[str, WeightedSample]], bounds: list[float]) -> None:
    low = min(sample.percentile(1) / 1e6 for _, sample in samples if sample.size)
    high = max([sample.percentile(100) / 1e6 for _, sample in samples if sample.size] + bounds)
    if low > 0 and high / low > LOG_RATIO:
        log_x(ax)
        ax.set_xlim(low / 1.3, high * 1.3)
    else:
        thousands(ax, "x")
        ax.set_xlim(0, (high or 1.0) * 1.06)


def ttft_breakdown(runs: Runs) -> Figure:
    """One stacked bar a variant: the mean of each part of the TTFT. The parts add up to the mean TTFT."""
    subtitle = "Mean parts of the time to first token, over the requests that got one"
    height = 1.75 + 0.42 * max(len(runs), 1)
    fig, (ax,) = figure("Where the time to first token goes", subtitle, 1, 1, height, left=0.16)
    label(ax, x="ms")
    for row, (_, run) in enumerate(runs):
        _stacked_bar(ax, row, run)
    ax.set_yticks(range(len(runs)), [variant for variant, _ in runs])
    ax.set_ylim(len(runs) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlim(0, (ax.dataLim.x1 if ax.dataLim.x1 > 0 else 1.0) * 1.1)
    thousands(ax, "x")
    for name, color in STAGES.values():
        ax.barh([0], [0], color=color, label=name)
    legend_above(ax)
    return fig


def _stacked_bar(ax: Axes, row: int, run: PlottedRun) -> None:
    answered = run.requests[run.requests["first_token"].notna()]
    if answered.empty:
        ax.text(0, row, " no request got a first token", size=8, color=FAINT, va="center")
        return
    parts = answered[list(STAGES)].mean().to_numpy(float) * 1e3
    left = np.cumsum(parts) - parts
    ax.barh(np.full(len(parts), row), parts, left=left, height=0.62, color=[color for _, color in STAGES.values()])
    ax.text(parts.sum(), row, f"  {number(parts.sum())} ms", size=8.5, color=INK, va="center")
