"""A Gantt chart of a small run: what each request was doing, from its arrival to its last token."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.plot_style import BLACK, DECODE, FAINT, INK, STAGES, PlottedRun, figure, label, legend_above, say, thousands

MAX_REQUESTS = 60  # more rows cannot be read
MOMENTS = ["arrival", "prepared", "admitted", "first_token", "finish"]


def request_gantt(name: str, run: PlottedRun) -> Figure:
    """A row per request, in the order of their ids; of a larger run the first 60."""
    requests = run.requests.head(MAX_REQUESTS)
    shown = "" if len(requests) == len(run.requests) else f"The first {len(requests)} of {len(run.requests):,}. "
    subtitle = shown + "Parts of the TTFT are drawn one after the other, in their full length; they may interleave"
    fig, (ax,) = figure(f"What each request did: {name}", subtitle, 1, 1, 2.0 + 0.13 * max(len(requests), 6))
    label(ax, x="time (s)", y="request")
    if requests.empty:
        say(ax, "no requests")
        return fig
    _bars(ax, requests, 6.0 if len(requests) > 20 else 8.0)
    _ends(ax, requests)
    ax.set_ylim(len(requests) - 0.4, -0.6)
    ax.set_yticks(*_ticks(requests))
    ax.grid(False, axis="y")
    ax.set_xlim(_span(requests))
    thousands(ax, "x")
    legend_above(ax)
    return fig


def _bars(ax: Axes, requests: pd.DataFrame, width: float) -> None:
    rows = np.arange(len(requests))
    left = requests["arrival"].to_numpy(float)
    ax.hlines(rows, left, _left(requests), colors="#DDDDDD", linewidth=1.0)
    for part, (name, color) in STAGES.items():
        right = left + requests[part].fillna(0.0).to_numpy(float)
        ax.hlines(rows, left, right, colors=color, linewidth=width, label=name)
        left = right
    first, finish = (requests[column].to_numpy(float) for column in ("first_token", "finish"))
    name, color = DECODE
    ax.hlines(rows, first, finish, colors=color, linewidth=width, label=name)
    ax.plot(first, rows, linestyle="none", marker="|", markersize=width, color=BLACK, label="first token")


def _span(requests: pd.DataFrame) -> tuple[float, float]:
    first, last = float(requests["arrival"].min()), float(requests[MOMENTS].max().max())
    margin = max(last - first, 1e-6) * 0.01
    return first - margin, last + margin


def _ends(ax: Axes, requests: pd.DataFrame) -> None:
    """How it ended, where not well."""
    middle = sum(_span(requests)) / 2
    for row, (status, end) in enumerate(zip(requests["status"], _left(requests), strict=True)):
        if status != "finished":
            ax.plot([end], [row], marker="x", markersize=5, color=INK, linestyle="none")
            shift, side = (6, "left") if end < middle else (-6, "right")
            ax.annotate(
                status, (end, row), (shift, 0), textcoords="offset points", size=7, color=FAINT, va="center", ha=side
            )


def _left(requests: pd.DataFrame) -> pd.Series:
    """When each was last heard of; one that is still there, at the end of the run."""
    there = requests["status"].isin(["stalled", "unfinished"])
    return requests[MOMENTS].max(axis=1).mask(there, requests[MOMENTS].max().max())


def _ticks(requests: pd.DataFrame) -> tuple[list[int], list[str]]:
    step = 1 if len(requests) <= 12 else 5
    rows = list(range(0, len(requests), step))
    return rows, [str(requests["request_id"].iloc[row]) for row in rows]
