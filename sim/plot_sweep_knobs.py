"""A sweep over its knobs: the figure that settings are ranked by, and latency against throughput."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.plot_style import BLUE, FAINT, INK, VERMILION, figure, label, log, number, thousands
from sim.sweep_knobs import Knob, Range
from sim.sweep_means import Swept, front
from sim.sweep_points import word

Floats = NDArray[np.float64]

COLOURS = "cividis"  # reads alike with every kind of colour vision (Nunez et al., PLoS ONE 13(7), 2018)
APART = 0.04  # of the height: labels nearer than that would cover one another
LATENCY, THROUGHPUT = "p99_ttft_ms", "output_throughput"


def heat_map(swept: Swept, x: str, y: str) -> Figure:
    """The figure over two knobs; where there are more, the best over the others. Of ranges, a point a setting."""
    rest = [path for path in swept.score_knobs if path not in (x, y)]
    subtitle = f"{swept.figure}{', the best over ' + ', '.join(rest) if rest else ''}"
    height = 5.6
    fig, (ax,) = figure(f"Over two knobs: {swept.name}, simulated", subtitle, 1, 1, height, left=0.16)
    label(ax, x=x, y=y)
    listed = not any(isinstance(swept.knobs[path], Range) for path in (x, y))
    image = _cells(ax, swept, x, y) if listed else _points(ax, swept, x, y)
    fig.colorbar(image, ax=ax, pad=0.02).ax.tick_params(labelsize=8)
    return fig


def _cells(ax: Axes, swept: Swept, x: str, y: str) -> Any:
    columns, rows = _values(swept.knobs[x]), _values(swept.knobs[y])
    cells = np.full((len(rows), len(columns)), np.nan)
    for setting, score in swept.scores[::-1]:  # the best last
        cells[rows.index(word(setting[y])), columns.index(word(setting[x]))] = score
    image = ax.pcolormesh(cells, cmap=COLOURS, edgecolors="white", linewidth=1.5)
    middle = np.nanmean([np.nanmin(cells), np.nanmax(cells)])
    for (row, column), score in np.ndenumerate(cells):
        words = "-" if np.isnan(score) else number(float(score))
        color = INK if np.isnan(score) or score > middle else "white"
        ax.text(column + 0.5, row + 0.5, words, size=8.5, color=color, ha="center", va="center")
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    ax.grid(False)
    return image


def _points(ax: Axes, swept: Swept, x: str, y: str) -> Any:
    scores = np.array([score for _, score in swept.scores[::-1]])
    x_places, y_places = (_places(ax, swept, path, which) for which, path in (("x", x), ("y", y)))
    return ax.scatter(x_places, y_places, c=scores, cmap=COLOURS, s=42, edgecolors=INK, linewidths=0.5)


def _places(ax: Axes, swept: Swept, path: str, which: str) -> Floats:
    """Numbers where they lie on their range, values of a list one after the other; the best last."""
    knob, values = swept.knobs[path], [setting[path] for setting, _ in swept.scores[::-1]]
    if isinstance(knob, Range):
        if knob.log:
            log(ax, which, fine=True)
        else:
            thousands(ax, which)
        return np.array(values, float)
    names = _values(knob)
    (ax.set_xticks if which == "x" else ax.set_yticks)(range(len(names)), names)
    return np.array([names.index(word(value)) for value in values], float)


def _values(knob: Knob) -> list[str]:
    return [] if isinstance(knob, Range) else [word(value) for value in knob]


def pareto(swept: Swept) -> Figure:
    """A point a setting; on the front are those that no other one beats in both."""
    point = "one simulation" if swept.apart else "a setting, means over replications"
    subtitle = f"A point is {point}; the line joins those that no other one beats in both"
    fig, (ax,) = figure(f"Latency against throughput: {swept.name}, simulated", subtitle, 1, 1, 5.6)
    label(ax, x="TTFT p99 (ms)", y="output tokens/s")
    cost, gain = (swept.means[name].to_numpy(float) for name in (LATENCY, THROUGHPUT))
    ax.plot(cost, gain, "o", color=BLUE, markersize=4, alpha=0.6, markeredgewidth=0)
    best = front(cost, gain)
    ax.plot(cost[best], gain[best], "o-", color=VERMILION, markersize=5, linewidth=1.2)
    if cost.min() > 0 and cost.max() / cost.min() > 20:
        log(ax, "x")
    else:
        thousands(ax, "x")
    thousands(ax)
    _label(ax, swept.words().to_list(), cost, gain, best)
    return fig


def _label(ax: Axes, words: list[str], cost: Floats, gain: Floats, best: NDArray[np.int64]) -> None:
    """Points on the front, beside the line that rises to the right, as far as they do not cover one another."""
    ax.autoscale_view()
    drawn = ax.transData.transform(np.column_stack([cost[best], gain[best]]))
    places, taken = ax.transAxes.inverted().transform(drawn), [np.inf]
    for point, (x, y) in zip(best[::-1], places[::-1], strict=True):
        if min(abs(y - other) for other in taken) < APART:
            continue
        taken.append(y)
        offset, align = ((-8, 4), "right") if x > 0.4 else ((8, -10), "left")
        where: dict[str, Any] = {"xytext": offset, "textcoords": "offset points", "ha": align}
        ax.annotate(words[point], (cost[point], gain[point]), size=7.5, color=FAINT, **where)
