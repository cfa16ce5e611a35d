"""How published figures move with what is not stated: one panel a figure that does not agree as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sim.claims import Claim
from sim.plot_style import DASHED, figure, label, legend_below_headline, line_style
from sim.published_page import Scene

MOST = 8  # figures
COLUMNS = 4  # of the legend
PANEL = 2.1  # inches


def sensitivity(scene: Scene) -> Figure:
    """The first knob along the axis, a line for each combination of the others."""
    shown = [index for index, claim in enumerate(scene.claims) if claim.agrees is False][:MOST]
    first, *rest = scene.published.unstated
    lines = list(dict.fromkeys(setting.values[1:] for setting in scene.settings))
    rows, legend = -(-len(shown) // 2), -(-(len(lines) + 1) // COLUMNS)
    top = 1.05 + 0.2 * legend
    height = top + rows * (PANEL + 0.85)
    subtitle = f"Along the axes: {first.what}" + (f". Lines: {'; '.join(knob.what for knob in rest)}" if rest else "")
    title = f"What would have to be true: {scene.name}, simulated"
    fig, axes = figure(title, subtitle, rows, 2, height, top=1 - top / height, hspace=0.85 / PANEL, wspace=0.2)
    for ax, index in zip(axes, shown, strict=False):
        _panel(ax, scene, index, lines)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    styles = [line_style(number, len(lines)) for number in range(len(lines))]
    handles: list[Artist] = [Line2D([], [], **style) for style in (*styles, DASHED)]
    words = ["; ".join(f"{value:,}" for value in values) or "simulated" for values in lines]
    legend_below_headline(fig, handles, [*words, "published"], COLUMNS)
    return fig


def _panel(ax: Axes, scene: Scene, index: int, lines: Sequence[tuple[Any, ...]]) -> None:
    claim = scene.claims[index]
    places = range(len(scene.published.unstated[0].values))
    for number, values in enumerate(lines):
        means = [setting.claims[index].mean for setting in scene.settings if setting.values[1:] == values]
        ax.plot(places, means, marker="o", markersize=3, **line_style(number, len(lines)))
    if claim.published is not None:
        ax.axhline(claim.published, **DASHED)
    ax.set_xticks(places, [f"{value:,}" if isinstance(value, int) else str(value) for value in _along(scene)])
    label(ax, title=_title(claim), x=scene.published.unstated[0].what, y="" if claim.figure.against is None else "%")


def _along(scene: Scene) -> Sequence[Any]:
    return scene.published.unstated[0].values


def _title(claim: Claim) -> str:
    kind = claim.figure.policy
    return f"{claim.figure.metric}, {kind if claim.figure.against is None else 'change'}"
