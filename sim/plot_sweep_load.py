"""A sweep's latencies and goodput against the load: where the SLOs break, setting by setting."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sim.plot_style import DASHED, INK, VARIANTS, figure, label, legend_below_headline, log, thousands
from sim.sweep_means import Swept

PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (  # title, unit, figures with the kind of their line
    ("Time to first token (TTFT)", "ms", {"p99_ttft_ms": "p99", "p50_ttft_ms": "p50"}),
    ("Time per output token (TPOT)", "ms", {"p99_tpot_ms": "p99", "p50_tpot_ms": "p50"}),
    ("Goodput: requests within every SLO", "1/s", {"request_goodput": "mean"}),
    ("Attainment: share within every SLO", "", {"slo_attainment": "mean"}),
)
LINES: dict[str, dict[str, Any]] = {
    "p99": {"linewidth": 1.6},
    "p50": {"linewidth": 1.0, "linestyle": (0, (2, 1.5))},
    "mean": {"linewidth": 1.6},
}
HEIGHT = 7.8
WIDE = 110  # characters of a line of the legend


def against_load(swept: Swept, load: str) -> Figure:
    """TTFT, TPOT, goodput and attainment, a line for each setting of the other knobs; of many, of the best."""
    lines, number = _lines(swept, load)
    names = [*lines, "p99", "p50", "SLO"]
    columns = max(1, WIDE // (max(map(len, names)) + 8))
    top = 1.1 + 0.2 * -(-len(names) // columns)
    shown = f"the best {len(lines)} of {number} settings" if number > len(lines) else "every setting"
    subtitle = f"{'A line a replication' if swept.apart else 'Means over replications'}, {shown} of the other knobs"
    title = f"Against {load}: {swept.name}, simulated"
    fig, axes = figure(title, subtitle, 2, 2, HEIGHT, top=1 - top / HEIGHT, hspace=0.4, wspace=0.18)
    for ax, (heading, unit, figures) in zip(axes, PANELS, strict=True):
        label(ax, title=heading, x=load.split(".")[-1], y=unit)
        _draw(ax, list(lines.values()), load, figures)
    _bounds(axes[0], swept.slo.ttft)
    _bounds(axes[1], swept.slo.tpot)
    colours = [Line2D([], [], color=color, linewidth=1.6) for color, _ in zip(VARIANTS, lines, strict=False)]
    kinds = [Line2D([], [], color=INK, **LINES[kind]) for kind in ("p99", "p50")]
    legend_below_headline(fig, [*colours, *kinds, Line2D([], [], **DASHED)], names, columns)
    return fig


def _lines(swept: Swept, load: str) -> tuple[dict[str, pd.DataFrame], int]:
    """Rows in the order of the load by the setting of the other knobs, best first, no more than there are colours."""
    lines: dict[str, pd.DataFrame] = {}
    for words in swept.in_order(without=load):
        rows = swept.means[swept.words(without=load) == words]
        lines[words] = rows.sort_values(load)
    some = list(lines.items())[: len(VARIANTS)]
    return dict(some), len(lines)


def _draw(ax: Axes, lines: list[pd.DataFrame], load: str, figures: dict[str, str]) -> None:
    for color, rows in zip(VARIANTS, lines, strict=False):
        for _, line in rows.groupby("replication"):
            for name, kind in figures.items():
                ax.plot(line[load], line[name], color=color, marker=".", markersize=4, **LINES[kind])
    thousands(ax, "x")
    if "mean" in figures.values():
        ax.set_ylim(bottom=0)
    else:
        log(ax, "y", fine=True)


def _bounds(ax: Axes, seconds: float | None) -> None:
    if seconds is not None:
        ax.axhline(seconds * 1e3, **DASHED)
