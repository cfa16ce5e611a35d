"""A Gantt chart of a small run: what each request was doing, from its arrival to its last token."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.plot_style import BLACK, DECODE, INK, STAGES, figure, label, legend_below_headline, say, thousands
from sim.plotted import PlottedRun, of_variant

MAX_REQUESTS = 60  # more rows cannot be read
WAITS = ("reservation_wait", "encoder_budget_wait", "other")
MOMENTS = ["arrival", "prepared", "admitted", "first_token", "finish"]


def request_gantt(name: str, run: PlottedRun) -> Figure:
    """A row per request, in the order of their ids; of a larger run the first 60."""
    requests = run.requests.head(MAX_REQUESTS)
    shown = "" if len(requests) == len(run.requests) else f"The first {len(requests)} of {len(run.requests):,}. "
    subtitle = (
        shown + "Parts of the TTFT stand one after the other, but may interleave; without a first token, waits last"
    )
    title = of_variant("What each request did", name, run)
    height = 2.1 + 0.15 * max(len(requests), 6)
    fig, (ax,) = figure(title, subtitle, 1, 1, height, top=1 - 1.15 / height)
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
    legend_below_headline(fig, *ax.get_legend_handles_labels(), columns=5)
    return fig


def _bars(ax: Axes, requests: pd.DataFrame, width: float) -> None:
    rows = np.arange(len(requests))
    left = requests["arrival"].to_numpy(float)
    ax.hlines(rows, left, _left(requests), colors="#DDDDDD", linewidth=1.0)
    starts = _starts(requests)
    for part, (name, color) in STAGES.items():
        taken = requests[part].fillna(0.0).to_numpy(float)
        if part != "transfer" or taken.any():
            ax.hlines(rows, starts[part], starts[part] + taken, colors=color, linewidth=width, label=name)
    first, finish = (requests[column].to_numpy(float) for column in ("first_token", "finish"))
    name, color = DECODE
    ax.hlines(rows, first, finish, colors=color, linewidth=width, label=name)
    ax.plot(first, rows, linestyle="none", marker="|", markersize=width, color=BLACK, label="first token")


def _starts(requests: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Where each part begins; who got no first token is waiting still, so its waits come after what it had done."""
    usual = list(STAGES)
    stuck = [part for part in usual if part not in WAITS] + [part for part in usual if part in WAITS]
    answered = requests["first_token"].notna().to_numpy()
    orders = [requests[order].fillna(0.0).cumsum(axis=1).shift(axis=1, fill_value=0.0) for order in (usual, stuck)]
    arrival = requests["arrival"].to_numpy(float)
    return {part: arrival + np.where(answered, *(order[part].to_numpy(float) for order in orders)) for part in usual}


def _span(requests: pd.DataFrame) -> tuple[float, float]:
    """With room for words behind a request that did not end well."""
    first, last = float(requests["arrival"].min()), float(requests[MOMENTS].max().max())
    margin = max(last - first, 1e-6) * 0.01
    return first - margin, last + margin * (1 if (requests["status"] == "finished").all() else 10)


def _ends(ax: Axes, requests: pd.DataFrame) -> None:
    """How it ended, where not well."""
    words: dict[str, Any] = {"textcoords": "offset points", "size": 8, "weight": "bold", "color": INK, "va": "center"}
    for row, (status, end) in enumerate(zip(requests["status"], _left(requests), strict=True)):
        if status != "finished":
            ax.plot([end], [row], marker="x", markersize=5, color=INK, linestyle="none")
            ax.annotate(status, (end, row), (7, 0), **words)


def _left(requests: pd.DataFrame) -> pd.Series:
    """When each was last heard of; one that is still there, at the end of the run."""
    there = requests["status"].isin(["stalled", "unfinished"])
    return requests[MOMENTS].max(axis=1).mask(there, requests[MOMENTS].max().max())


def _ticks(requests: pd.DataFrame) -> tuple[list[int], list[str]]:
    step = 1 if len(requests) <= 12 else 5
    rows = list(range(0, len(requests), step))
    return rows, [str(requests["request_id"].iloc[row]) for row in rows]
