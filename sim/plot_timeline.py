"""Plots over the time of one run: what each iteration carried, and what was occupied meanwhile."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.binning import Bins, binned
from sim.plot_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    PlottedRun,
    bound_line,
    figure,
    label,
    legend_above,
    say,
    thousands,
)

Floats = NDArray[np.float64]
Window = tuple[float, float]
Panel = Callable[[Axes, Bins, PlottedRun], None]

BATCH = ["encoder_tokens", "num_prefill_tokens", "num_decodes"]
OCCUPIED = ["kv_blocks_used", "encoder_rows_held", "encoder_rows_resident", "num_running", "num_waiting"]


def iteration_timeline(name: str, run: PlottedRun, window: Window | None = None) -> Figure:
    """Batch composition against its budgets, and how long iterations took; `window` in seconds."""
    return _over_time(f"What each iteration carried: {name}", run, window, (_batch, _encoder, _durations))


def occupancy(name: str, run: PlottedRun, window: Window | None = None) -> Figure:
    """KV blocks and encoder rows against what there is, and how many requests run and wait."""
    return _over_time(f"What was occupied: {name}", run, window, (_kv_blocks, _encoder_rows, _requests))


def _over_time(title: str, run: PlottedRun, window: Window | None, panels: tuple[Panel, ...]) -> Figure:
    bins = _bins(run, window)
    fig, axes = figure(title, _subtitle(bins), len(panels), 1, 7.2, hspace=0.36, shared=True)
    for ax, panel in zip(axes, panels, strict=True):
        if bins is None:
            say(ax, "no iterations")
        else:
            panel(ax, bins, run)
            ax.set_xlim(bins.edges[0], bins.edges[-1])
    axes[-1].set_xlabel("time (s)", size=9, color=INK)
    return fig


def _bins(run: PlottedRun, window: Window | None) -> Bins | None:
    iterations = run.iterations
    if window is not None:
        iterations = iterations[(iterations["end"] > window[0]) & (iterations["start"] < window[1])]
    if iterations.empty:
        return None
    columns = {column: iterations[column].to_numpy(float) for column in BATCH + OCCUPIED}
    columns["llm_tokens"] = columns["num_prefill_tokens"] + columns["num_decodes"]
    columns["duration_ms"] = (iterations["end"] - iterations["start"]).to_numpy(float) * 1e3
    return binned(iterations, columns)


def _subtitle(bins: Bins | None) -> str:
    if bins is None or bins.group == 1:
        return "Every iteration, drawn from its start to its end"
    return f"Means over {bins.group} iterations at a time; thin lines: the largest of each {bins.group}"


def _batch(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    decode, total = bins.mean["num_decodes"], bins.mean["llm_tokens"]
    ax.stairs(decode, bins.edges, fill=True, color=GREEN, label="decode")
    ax.stairs(total, bins.edges, baseline=decode, fill=True, color=BLUE, label="prefill")
    _peak(ax, bins, "llm_tokens", BLUE)
    label(ax, title="Language model tokens per iteration", y="tokens")
    _bounded(ax, run.limits.max_num_batched_tokens, "token budget", 2)


def _encoder(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    ax.stairs(bins.mean["encoder_tokens"], bins.edges, fill=True, color=ORANGE, label="encode")
    _peak(ax, bins, "encoder_tokens", ORANGE)
    label(ax, title="Encoder tokens per iteration (before the merger)", y="tokens")
    _bounded(ax, run.limits.encoder_max_num_tokens, "encoder budget", 1)


def _durations(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    mean = np.where(bins.idle, np.nan, bins.mean["duration_ms"])
    ax.stairs(mean, bins.edges, baseline=None, color=INK, linewidth=1.1, label="duration")
    _peak(ax, bins, "duration_ms", INK)
    label(ax, title="Iteration duration", y="ms")
    _bounded(ax, None if run.slo.itl is None else run.slo.itl * 1e3, "ITL SLO, ms:", 1)


def _kv_blocks(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    ax.stairs(bins.mean["kv_blocks_used"], bins.edges, fill=True, color=SKY, label="used")
    _peak(ax, bins, "kv_blocks_used", BLUE)
    label(ax, title="KV cache", y="blocks")
    _bounded(ax, run.limits.num_kv_blocks, "blocks in all", 1)


def _encoder_rows(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    held = bins.mean["encoder_rows_held"]
    resident = np.maximum(_carried_on(bins.mean["encoder_rows_resident"], bins.idle), held)
    ax.stairs(held, bins.edges, fill=True, color=ORANGE, label="held by requests")
    ax.stairs(resident, bins.edges, baseline=held, fill=True, color=ORANGE, alpha=0.3, label="kept for reuse")
    label(ax, title="Encoder cache", y="rows")
    _bounded(ax, run.limits.encoder_cache_rows, "rows in all", 2)


def _requests(ax: Axes, bins: Bins, run: PlottedRun) -> None:
    ax.stairs(bins.mean["num_running"], bins.edges, baseline=None, color=GREEN, linewidth=1.3, label="running")
    ax.stairs(bins.mean["num_waiting"], bins.edges, baseline=None, color=VERMILION, linewidth=1.3, label="waiting")
    label(ax, title="Requests", y="requests")
    _bounded(ax, run.limits.max_num_seqs, "may run", 2)


def _carried_on(values: Floats, idle: NDArray[np.bool_]) -> Floats:
    """What stays in the cache while the server idles: the value before. The first bin is never idle."""
    before = np.maximum.accumulate(np.where(idle, 0, np.arange(len(values))))
    return values[before]


def _peak(ax: Axes, bins: Bins, column: str, color: str) -> None:
    if bins.group > 1:
        ax.stairs(bins.peak[column], bins.edges, baseline=None, color=color, linewidth=0.6, alpha=0.55)


def _bounded(ax: Axes, bound: int | float | str | None, name: str, columns: int) -> None:
    ax.set_ylim(0, max(ax.dataLim.y1, 1e-9) * 1.12)
    bound_line(ax, bound, name)
    thousands(ax)
    legend_above(ax, columns)
