"""What `tandem compare` prints of two runs without a live one: how many requests, the figures, what they leave open."""

from __future__ import annotations

import math

from sim.client_view import ClientView
from sim.compare_pair import Pair, is_significant
from sim.compare_seeds import Seeds
from sim.fidelity import signed, title
from sim.published_table import number
from sim.sheet import Sheet


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
    told = [f"{folder}: {line}" for folder, view in zip(pair.folders, pair.views, strict=True) if (line := _lost(view))]
    if pair.free.num_left_out:
        told.append("figures are of the requests compared, rates too: the runs' own summaries have those of all")
    if not pair.measured:
        told.append("of one run each: whether other seeds say the same, replications in both tell")
    if any(view.gaps is None for view in pair.views):
        told.append("no ITL: of one of both nobody knows when each token came")
    return told


def _span(low: float, high: float) -> str:
    """With as many digits as it takes to see on which side of 0 an end lies."""
    nearest = min(abs(low), abs(high)) or 1.0
    digits = 1 if nearest >= 0.05 else min(6, -math.floor(math.log10(nearest)))
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def _lost(view: ClientView) -> str:
    """`200 of 400 requests finished, 102 rejected, 98 stalled`, where not all finished."""
    status = view.requests["status"].value_counts()
    others = [f"{count:,} {name}" for name, count in status.items() if name != "finished"]
    return (
        ", ".join([f"{status.get('finished', 0):,} of {status.sum():,} requests finished", *others]) if others else ""
    )


def changes(pair: Pair | Seeds) -> Sheet:
    """From one simulation to another."""
    figures = pair.free.figures if isinstance(pair, Pair) else pair.figures
    of = "requests redrawn" if isinstance(pair, Pair) else "over the seeds"
    rows = []
    for name, figure in figures.items():
        numbers = ["-" if value is None else number(value) for value in (figure.measured, figure.simulated)]
        ends = figure.interval_percent
        interval = "-" if ends is None else _span(*ends)
        apart = {True: "yes", False: "no", None: "-"}[is_significant(figure)]
        rows.append([title(name), *numbers, signed(figure.error_percent), interval, apart])
    return Sheet(counts(pair), ["figure", "first", "second", "change (%)", f"95 %, {of}", "told apart"], rows)
