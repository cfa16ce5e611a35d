"""A run at a glance: TTFT, ITL and the parts of the TTFT, small enough to stand below a table."""

from matplotlib.axes import Axes

from sim.plot_breakdown import parts_bars, parts_legend
from sim.plot_latencies import cdf_panel
from sim.plot_style import LEGEND, ShownFigure, label, line_style, quieten
from sim.plotted import Runs

HEIGHT, DPI = 2.6, 80


def glance(runs: Runs) -> ShownFigure:
    """Three panels: the distributions of TTFT and ITL, and the mean parts of the TTFT; one line or bar a variant."""
    height = HEIGHT + 0.18 * max(len(runs) - 4, 0)
    fig = ShownFigure(figsize=(11, height), dpi=DPI, facecolor="white")
    left = 0.16 if len(runs) > 1 else 0.0
    grid = {"left": 0.04, "right": 0.985, "bottom": 0.82 / height, "top": 1 - 0.3 / height, "wspace": 0.16}
    ttft, itl, parts = fig.subplots(1, 3, gridspec_kw=grid | {"width_ratios": [1, 1, 1 - left]})
    for ax in (ttft, itl, parts):
        quieten(ax)
    cdf_panel(ttft, "ttft", runs)
    cdf_panel(itl, "itl", runs)
    _parts(parts, runs)
    place = parts.get_position()
    parts.set_position((place.x0 + left / 3, place.y0, place.width - left / 3, place.height))
    names = parts_legend(parts, runs)
    fig.legend(*names, ncols=len(names[1]), loc="lower right", bbox_to_anchor=(0.985, 0.0), borderaxespad=0.2, **LEGEND)
    return fig


def _parts(ax: Axes, runs: Runs) -> None:
    """The names of the variants in the colours of their lines."""
    parts_bars(ax, runs)
    label(ax, title="Mean parts of the TTFT", x="ms")
    ax.set_xlim(0, ax.get_xlim()[1] * 1.12)
    if len(runs) == 1:
        ax.set_yticks([])
    for index, words in enumerate(ax.get_yticklabels()):
        words.set(color=line_style(index, len(runs))["color"], size=7, weight="bold")
