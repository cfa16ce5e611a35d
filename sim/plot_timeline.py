"""Plots over the time of one run: what each iteration carried, and what was occupied meanwhile."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from numpy.typing import NDArray

from sim.binning import Bins, binned
from sim.plot_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    bound_line,
    figure,
    label,
    legend_above,
    say,
    thousands,
)
from sim.plotted import PlottedRun, of_variant

Floats = NDArray[np.float64]
Window = tuple[float, float]
Panel = Callable[[Axes, Bins, PlottedRun], None]

BATCH = ["encoder_tokens", "num_prefill_tokens", "num_decodes"]
OCCUPIED = ["kv_blocks_used", "encoder_rows_held", "encoder_rows_resident", "num_running", "num_waiting"]


def iteration_timeline(name: str, run: PlottedRun, window: Window | None = None) -> Figure:
    """Prefill, decodes and encoding against their budgets, and how long iterations took; `window` in seconds."""
    title = of_variant("What each iteration carried", name, run)
    return _over_time(title, run, window, (_prefill, _decodes, _encoder, _durations))


def occupancy(name: str, run: PlottedRun, window: Window | None = None) -> Figure:
    """KV blocks and encoder rows against what there is, and how many requests run and wait."""
    title = of_variant("What was occupied", name, run)
    return _over_time(title, run, window, (_kv_blocks, _encoder_rows, _requests))


def _over_time(title: str, run: PlottedRun, window: Window | None, panels: tuple[Panel, ...]) -> Figure:
    bins = _bins(run, window)
    fig, axes = figure(title, _subtitle(bins), len(panels), 1, 1.6 + 1.87 * len(panels), hspace=0.36, shared=True)
    for ax, panel in zip(axes, panels, strict=True):
        if bins is None:
            say(ax, "no iterations")
        else:
            panel(ax, bins, run)
            ax.set_xlim(bins.edges[0], max(bins.edges[-1], bins.edges[0] + 1e-6))
    fig.align_ylabels(axes)
    axes[-1].set_xlabel("time (s)", size=9, color=INK)
    return fig


def _bins(run: PlottedRun, window: Window | None) -> Bins | None:
    iterations = run.iterations
    if window is not None:
        iterations = iterations[(iterations["end"] > window[0]) & (iterations["start"] < window[1])]
    if iterations.empty:
        return None
    columns = {column: iterations[column].to_numpy(float) for column in BATCH + OCCUPIED}
    columns["duration_ms"] = (iterations["end"] - iterations["start"]).to_numpy(float) * 1e3
    return binned(iterations, columns)


def _subtitle(bins: Bins | None) -> str:
    if bins is None or bins.width is None:
        return "Every iteration, drawn from its start to its end"
    return f"Means over {bins.width:.2g} s at a time; pale: the largest of each"


def _prefill(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _pale_peak(ax, bins, "num_prefill_tokens", BLUE)
    _stairs(ax, bins.mean["num_prefill_tokens"], bins.edges, fill=True, color=BLUE, label="prefill")
    title = "Prefill tokens per iteration (the budget is shared with the decodes)"
    _finish(ax, title, "tokens", run.limits.max_num_batched_tokens, "budget {}")


def _decodes(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _pale_peak(ax, bins, "num_decodes", GREEN)
    _stairs(ax, bins.mean["num_decodes"], bins.edges, fill=True, color=GREEN, label="decode")
    _finish(ax, "Decodes per iteration (a token each)", "requests", run.limits.max_num_seqs, "{} may run")


def _encoder(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _pale_peak(ax, bins, "encoder_tokens", ORANGE)
    _stairs(ax, bins.mean["encoder_tokens"], bins.edges, fill=True, color=ORANGE, label="encode")
    title = "Encoder tokens per iteration (before the merger)"
    own_unit = run.limits.encoder_budget_unit == "encoder_tokens"  # one in embeds has no place on this axis
    _finish(ax, title, "tokens", run.limits.encoder_max_num_tokens if own_unit else None, "budget {}")


def _durations(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _pale_peak(ax, bins, "duration_ms", INK)
    mean = np.where(bins.idle, np.nan, bins.mean["duration_ms"])
    _stairs(ax, mean, bins.edges, baseline=None, color=INK, linewidth=1.1, label="duration")
    _finish(ax, "Iteration duration", "ms", run.slo.itl and run.slo.itl * 1e3, "ITL SLO {} ms")


def _kv_blocks(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _pale_peak(ax, bins, "kv_blocks_used", BLUE)
    _stairs(ax, bins.mean["kv_blocks_used"], bins.edges, fill=True, color=SKY, label="used")
    _finish(ax, "KV cache", "blocks", run.limits.num_kv_blocks, "{} in all")


def _encoder_rows(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    held = bins.mean["encoder_rows_held"]
    resident = np.maximum(_carried_on(bins.mean["encoder_rows_resident"], bins.idle), held)
    _stairs(ax, held, bins.edges, fill=True, color=ORANGE, label="held by requests")
    _stairs(ax, resident, bins.edges, baseline=held, fill=True, color=ORANGE, alpha=0.3, label="kept for reuse")
    _finish(ax, "Encoder cache", "rows", run.limits.encoder_cache_rows, "{} in all")


def _requests(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    _stairs(ax, bins.mean["num_running"], bins.edges, baseline=None, color=GREEN, linewidth=1.3, label="running")
    _stairs(ax, bins.mean["num_waiting"], bins.edges, baseline=None, color=VERMILION, linewidth=1.3, label="waiting")
    _finish(ax, "Requests", "requests", run.limits.max_num_seqs, "{} may run")


def _carried_on(values: Floats, idle: NDArray[np.bool_]) -> Floats:
    """What stays in the cache while the server idles: the value before. The first bin is never idle."""
    before = np.maximum.accumulate(np.where(idle, 0, np.arange(len(values))))
    return values[before]


def _stairs(ax: Axes, values: Floats, edges: Floats, **style: Any) -> None:
    """As `Axes.stairs`, which looks for the extent of its steps one by one and takes ten times as long."""
    style = ({"linewidth": 0} if style.get("fill") else {"fill": False}) | style
    ax.add_artist(StepPatch(values, edges, **style))
    highest = float(np.nanmax(values, initial=0.0))
    ax.update_datalim([(edges[0], 0.0), (edges[-1], highest)])


def _pale_peak(ax: Axes, bins: Bins, column: str, color: str) -> None:
    if bins.width is not None:
        _stairs(ax, bins.peak[column], bins.edges, fill=True, color=color, alpha=0.25)


def _finish(ax: Axes, title: str, unit: str, bound: float | str | None, words: str) -> None:
    label(ax, title=title, y=unit)
    bound_line(ax, bound, words)
    thousands(ax, whole=unit != "ms")
    legend_above(ax)
