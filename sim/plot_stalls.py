"""Stall attribution at a glance: how long running decodes waited, against what their iteration encoded."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.attribution import blame, stall_attribution
from sim.plot_style import BLUE, GREEN, ORANGE, bound_line, figure, label, legend_below_headline, say, thousands
from sim.plotted import PlottedRun, Runs, named, one_of

Floats = NDArray[np.float64]
Points = tuple[Floats, Floats, Floats, Floats]  # encoder tokens, prefill tokens, duration and encoding in ms

RASTER = 600  # points closer than this part of an axis cover one another and are drawn once
PANEL = 2.1  # height in inches where there are several


def stalls(runs: Runs) -> Figure:
    """Each iteration that carried decodes: the gap it made them wait, against its encoder tokens; all on equal axes."""
    points = [_points(run) for _, run in runs]
    columns, title = min(len(runs), 2), named("What makes decodes wait", runs)
    rows = -(-len(runs) // 2)
    height = 5.0 if rows == 1 else 1.85 + rows * (PANEL + 0.75) - 0.75
    fig, axes = figure(
        title, _subtitle(runs), rows, columns, height, top=1 - 1.3 / height, hspace=0.75 / PANEL, wspace=0.14
    )
    most = [max((float(axis.max()) for axis in those if axis.size), default=0.0) for those in zip(*points, strict=True)]
    for ax, (variant, run), these in zip(axes, runs, points, strict=False):
        _panel(ax, run, these, max(most[0], 1.0), most[2])
        label(ax, title=", ".join(words for words in (variant + one_of(run), _verdict(run)) if words))
    for ax in axes[len(runs) :]:
        ax.set_visible(False)
    for ax in axes[max(len(runs) - columns, 0) : len(runs)]:
        label(ax, title=ax.get_title("left"), x="encoder tokens in the iteration")
    for ax in axes[::columns]:
        ax.set_ylabel("duration (ms)", size=9)
    legend = {words: handle for ax in axes for handle, words in zip(*ax.get_legend_handles_labels(), strict=True)}
    legend_below_headline(fig, list(legend.values()), list(legend), 6)
    return fig


def _subtitle(runs: Runs) -> str:
    bounds = {run.slo.itl for _, run in runs}
    about = "A point is an iteration that carried decodes; "
    if bounds == {None}:
        return about + "no ITL SLO is set"
    words = " or ".join(f"{bound * 1e3:g} ms" for bound in sorted(bound for bound in bounds if bound is not None))
    return about + f"long are gaps beyond the ITL SLO of {words}"


def _points(run: PlottedRun) -> Points:
    carried = run.iterations[run.iterations["num_decodes"] > 0]
    tokens, prefill = (carried[column].to_numpy(float) for column in ("encoder_tokens", "num_prefill_tokens"))
    encode = carried["encode"].to_numpy(float) * 1e3  # also of items launched before, on a side stream
    return tokens, prefill, (carried["end"] - carried["start"]).to_numpy(float) * 1e3, encode


def _panel(ax: Axes, run: PlottedRun, points: Points, widest: float, longest: float) -> None:
    tokens, prefill, duration, encode = points
    encoding = (tokens > 0) | (encode > 0)
    ax.set_xlim(-0.015 * widest, widest * 1.03)
    if not tokens.size:
        say(ax, "no decodes")
    raster = (widest, max(longest, 1e-9))
    _scatter(ax, tokens, duration, ~encoding & (prefill == 0), raster, "decodes alone", GREEN)
    _scatter(ax, tokens, duration, ~encoding & (prefill > 0), raster, "with prefill", BLUE)
    _scatter(ax, tokens, duration, encoding, raster, "with encoding", ORANGE)
    bound_line(ax, run.slo.itl and run.slo.itl * 1e3, "ITL SLO {} ms", top=longest)
    thousands(ax)
    thousands(ax, "x", whole=True)


def _verdict(run: PlottedRun) -> str:
    if run.slo.itl is None:
        return ""
    stalled = blame(stall_attribution(run.iterations, run.slo.itl))
    parts = ", ".join(f"{gaps:,} ({cause})" for cause, gaps in stalled.items() if gaps)
    return f"long gaps: {parts}" if parts else "no long gaps"


def _scatter(
    ax: Axes, x: Floats, y: Floats, chosen: NDArray[np.bool_], extent: tuple[float, float], name: str, color: str
) -> None:
    if chosen.any():
        column, row = (np.rint(axis[chosen] / most * RASTER) for axis, most in zip((x, y), extent, strict=True))
        kept = np.flatnonzero(chosen)[np.unique(column * 2 * RASTER + row, return_index=True)[1]]
        ax.scatter(x[kept], y[kept], s=9, color=color, alpha=0.6, linewidths=0, label=name)
