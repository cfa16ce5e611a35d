"""How every plot looks: colours that colour-blind readers can tell apart, light grids, few words, the same bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sim.files import whole

# Okabe and Ito, "Color Universal Design" (2008)
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"
SAND = "#DDD5C3"  # muted: what is left over
VARIANTS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
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
    "reservation_wait": ("row reservation", PURPLE),
    "encoder_budget_wait": ("encoder budget or rows", VERMILION),
    "encode": ("encode", ORANGE),
    "transfer": ("transfer", SKY),
    "prefill": ("prefill", BLUE),
    "delivery": ("front end busy", BLACK),
    "other": ("other: KV blocks, others' encoding, host", SAND),
}
DECODE = ("decode", GREEN)


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


def legend_above(ax: Axes) -> None:
    """In one line on the right of the panel's title, where no data are."""
    columns = len(ax.get_legend_handles_labels()[1])
    ax.legend(ncols=columns, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, **LEGEND)


def legend_below_headline(fig: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int) -> None:
    """For all panels at once; a figure needs 0.2 inches more above its panels for each line."""
    place = (0.075, 1 - 0.70 / fig.get_figheight())
    fig.legend(handles, labels, ncols=columns, loc="upper left", bbox_to_anchor=place, borderaxespad=0, **LEGEND)


def bound_line(ax: Axes, bound: float | str | None, words: str, top: float | None = None) -> None:
    """A dashed line at a budget from 0 up, unless the data stay so far below that they would not be seen with it.

    `words` say what it is, with `{}` for the number; the data reach `top`, by default what is drawn.
    """
    reached = ax.dataLim.y1 if top is None else top
    top = (reached if reached > 0 else 1.0) * 1.08
    ax.set_ylim(0, top)
    if not isinstance(bound, int | float):
        return
    far = bound > 4 * top
    ax.axhline(bound, **DASHED, label=words.format(number(bound)) + (" (above)" if far else ""))
    ax.set_ylim(0, top if far else max(top, bound * 1.08))


def thousands(ax: Axes, which: str = "y", *, whole: bool = False) -> None:
    """Numbers with separators; of what is counted, whole ones."""
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_major_locator(MaxNLocator(nbins=5 if which == "y" else 9, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def log(ax: Axes, which: str) -> None:
    """Logarithmic, with a few plain numbers; powers of ten would be typeset, which takes longer than to draw them."""
    axis = ax.yaxis if which == "y" else ax.xaxis
    (ax.set_yscale if which == "y" else ax.set_xscale)("log")
    axis.set_major_locator(LogLocator(subs=(1.0,) if which == "y" else (1.0, 2.0, 5.0), numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def line_style(index: int, number: int) -> dict[str, Any]:
    """Of one of so many variants: the first are wide and lie below, so that those that cover each other all show."""
    width = 1.4 + 0.45 * min(number - 1 - index, 4)
    return {"color": VARIANTS[index % len(VARIANTS)], "linestyle": DASHES[index % len(DASHES)], "linewidth": width}


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
    path.parent.mkdir(parents=True, exist_ok=True)  # another run into the same folder may have removed it
    with whole(path) as partial:
        fig.savefig(partial, format="png", metadata={"Software": None})
    return path
