"""What `tandem compare` prints of two runs without a live one: how many requests, the figures, what they leave open."""

from __future__ import annotations

from rich.table import Table

from sim.compare_free import Figure
from sim.compare_pair import Pair, is_significant
from sim.compare_seeds import Seeds
from sim.compare_tables import figure_title, figures_table
from sim.published_table import number


def counts(pair: Pair | Seeds) -> str:
    """What the figures are of."""
    if isinstance(pair, Seeds):
        same = "the same seeds, compared seed by seed" if pair.paired else "other seeds"
        return f"{pair.sizes[0]} runs against {pair.sizes[1]}, {same}"
    rest = f"; {pair.free.num_left_out:,} others left out" if pair.free.num_left_out else ""
    if pair.paired:
        return f"{pair.free.num_requests:,} requests that finished in both, compared one by one{rest}"
    return f"other requests in each, so each run's are drawn by themselves{rest}"


def asides(pair: Pair | Seeds) -> list[str]:
    """What the intervals are not of, and what is missing."""
    if isinstance(pair, Seeds):
        return []
    told = [] if pair.measured else ["of one run each: whether other seeds say the same, replications in both tell"]
    if any(view.gaps is None for view in pair.views):
        told.append("no ITL: of one of both nobody knows when each token came")
    return told


def change_table(pair: Pair | Seeds) -> Table:
    """From one simulation to another."""
    figures = pair.free.figures if isinstance(pair, Pair) else pair.figures
    of = "requests redrawn" if isinstance(pair, Pair) else "over the seeds"
    table = figures_table("figure", ("first", "second", "change (%)", f"95 %, {of}", "told apart"))
    for name, figure in figures.items():
        significant = {True: "yes", False: "no", None: "-"}[is_significant(figure)]
        cells = [_cell(figure.measured), _cell(figure.simulated), *_percents(figure), significant]
        table.add_row(figure_title(name), *cells)
    return table


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _percents(figure: Figure) -> tuple[str, str]:
    percent = "-" if figure.error_percent is None else f"{figure.error_percent:+.2f}"
    ends = figure.interval_percent
    return percent, "-" if ends is None else f"{ends[0]:+.1f} to {ends[1]:+.1f}"
