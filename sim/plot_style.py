"""How every plot looks: colours that colour-blind readers can tell apart, light grids, few words, the same bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from policies.limits import Limits
from sim.samples import WeightedSample
from sim.slo import SLO

# Okabe and Ito, "Color Universal Design" (2008)
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"
VARIANTS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES = ("-", "--", ":", "-.")  # the next one when the colours begin anew
INK, FAINT, GRID = "#333333", "#777777", "#E6E6E6"
DASHED: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (5, 3))}
LEGEND: dict[str, Any] = {
    "fontsize": 8,
    "frameon": False,
    "handlelength": 1.6,
    "columnspacing": 1.4,
    "labelcolor": INK,
}

STAGES = {
    "preparation": ("preparation", "#C8C8C8"),
    "queue_wait": ("queue", "#8C8C8C"),
    "reservation_wait": ("cache-row wait", PURPLE),
    "encoder_budget_wait": ("encoder-budget wait", VERMILION),
    "encode": ("encode", ORANGE),
    "prefill": ("prefill", BLUE),
    "other": ("other", YELLOW),
}
DECODE = ("decode", GREEN)


class PlottedRun(Protocol):
    """What a plot asks of a run."""

    @property
    def requests(self) -> pd.DataFrame: ...
    @property
    def iterations(self) -> pd.DataFrame: ...
    @property
    def itl_sample(self) -> WeightedSample: ...
    @property
    def slo(self) -> SLO: ...
    @property
    def limits(self) -> Limits: ...


Runs = Sequence[tuple[str, PlottedRun]]


def figure(
    title: str,
    subtitle: str,
    rows: int,
    columns: int,
    height: float,
    *,
    shared: bool = False,
    foot: float = 0.55,
    **grid: float,
) -> tuple[Figure, list[Axes]]:
    """A figure 10 inches wide with a headline and empty axes, row by row, `foot` inches above its lower edge."""
    fig = Figure(figsize=(10, height), dpi=110, facecolor="white")
    fig.text(0.075, 1 - 0.30 / height, title, size=13, weight="bold", color=INK, va="center")
    fig.text(0.075, 1 - 0.56 / height, subtitle, size=9, color=FAINT, va="center")
    margins = {"left": 0.075, "right": 0.975, "bottom": foot / height, "top": 1 - 1.05 / height}
    axes = fig.subplots(rows, columns, sharex=shared, squeeze=False, gridspec_kw=margins | grid)
    for ax in axes.flat:
        _quieten(ax)
    return fig, list(axes.flat)


def _quieten(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#AAAAAA")
    ax.tick_params(labelsize=8, colors=INK, color="#AAAAAA", length=3)
    ax.grid(True, color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)


def label(ax: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    ax.set_title(title, loc="left", size=10, color=INK, pad=6)
    ax.set_xlabel(x, size=9, color=INK)
    ax.set_ylabel(y, size=9, color=INK)


def legend_above(ax: Axes, *, markerscale: float = 1.0) -> None:
    """In one line on the right of the panel's title, where no data are."""
    columns = len(ax.get_legend_handles_labels()[1])
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2, "markerscale": markerscale}
    ax.legend(ncols=columns, **LEGEND | place)


def bound_line(ax: Axes, bound: float | str | None, words: str) -> None:
    """A dashed line at a budget from 0 up, unless the data stay so far below that they would not be seen with it.

    `words` say what it is, with `{}` for the number.
    """
    top = (ax.dataLim.y1 if ax.dataLim.y1 > 0 else 1.0) * 1.08
    ax.set_ylim(0, top)
    if not isinstance(bound, int | float):
        return
    far = bound > 4 * top
    ax.axhline(bound, **DASHED, label=words.format(number(bound)) + (" (above)" if far else ""))
    ax.set_ylim(0, top if far else max(top, bound * 1.08))


def thousands(ax: Axes, which: str = "y") -> None:
    """Whole numbers with separators."""
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_major_locator(MaxNLocator(nbins=5 if which == "y" else 9, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def log_x(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def say(ax: Axes, words: str) -> None:
    """Words in place of data that are not there."""
    ax.text(0.5, 0.5, words, size=9, color=FAINT, ha="center", va="center", transform=ax.transAxes)


def number(value: float) -> str:
    """Three digits, or all of a whole number."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def save(fig: Figure, path: Path) -> Path:
    """Whole or not at all, and without dates or versions inside."""
    partial = path.with_name(path.name + ".partial")
    fig.savefig(partial, format="png", metadata={"Software": None})
    return partial.replace(path)
