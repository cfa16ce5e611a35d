"""Stall attribution at a glance: how long running decodes waited, against what their iteration encoded."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.attribution import blame, stall_attribution
from sim.plot_style import BLUE, GREEN, ORANGE, PlottedRun, bound_line, figure, label, legend_above, say, thousands

Floats = NDArray[np.float64]

RASTER = 600  # points closer than this part of an axis cover one another and are drawn once


def stalls(name: str, run: PlottedRun) -> Figure:
    """Each iteration that carried decodes: the gap it made them wait, against the encoder tokens in it."""
    carried = run.iterations[run.iterations["num_decodes"] > 0]
    fig, (ax,) = figure(f"What makes decodes wait: {name}", _verdict(run), 1, 1, 5.0)
    label(ax, title="Iterations that carried decodes", x="encoder tokens in the iteration", y="duration (ms)")
    if carried.empty:
        say(ax, "no decodes")
        return fig
    tokens = carried["encoder_tokens"].to_numpy(float)
    prefill = carried["num_prefill_tokens"].to_numpy(float)
    duration = (carried["end"] - carried["start"]).to_numpy(float) * 1e3
    _points(ax, tokens, duration, (tokens == 0) & (prefill == 0), "decodes alone", GREEN)
    _points(ax, tokens, duration, (tokens == 0) & (prefill > 0), "with prefill", BLUE)
    _points(ax, tokens, duration, tokens > 0, "with encoding", ORANGE)
    ax.set_xlim(-0.015 * max(tokens.max(), 1), max(tokens.max(), 1) * 1.03)
    bound_line(ax, run.slo.itl and run.slo.itl * 1e3, "ITL SLO {} ms")
    thousands(ax)
    thousands(ax, "x")
    legend_above(ax, markerscale=2)
    return fig


def _verdict(run: PlottedRun) -> str:
    if run.slo.itl is None:
        return "Every iteration that carried decodes; no ITL SLO is set"
    stalled = blame(stall_attribution(run.iterations, run.slo.itl))
    parts = ", ".join(f"{gaps:,} ({cause})" for cause, gaps in stalled.items() if gaps) or "none"
    return f"Gaps longer than the ITL SLO of {run.slo.itl * 1e3:g} ms: {parts}"


def _points(ax: Axes, x: Floats, y: Floats, chosen: NDArray[np.bool_], name: str, color: str) -> None:
    if chosen.any():
        column, row = (np.rint(axis[chosen] / max(axis.max(), 1e-9) * RASTER) for axis in (x, y))
        kept = np.flatnonzero(chosen)[np.unique(column * 2 * RASTER + row, return_index=True)[1]]
        ax.scatter(x[kept], y[kept], s=9, color=color, alpha=0.6, linewidths=0, label=name)
