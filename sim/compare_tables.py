"""What `tandem compare` prints: the three checks of each pair, and how alike variants rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from sim.compare import Comparison
from sim.compare_forced import Errors, Forced, by_shape
from sim.fidelity import figures, signed, taus
from sim.sheet import print_sheet
from sim.tables import new_table, say

SHOWN = 0.05  # shapes with at least this share of their stage's time are printed; compare.json has all
MOST_SHAPES = 6


def print_comparison(console: Console, comparison: Comparison) -> None:
    """One pair: the first line says whether the twin is identical."""
    if comparison.label:
        say(console, f"{comparison.label}:")
    say(console, f"twin: {comparison.twin_check}")
    for note in comparison.notes:
        say(console, note)
    if comparison.exact is not None:  # prices against themselves would be a table of zeros
        say(console, f"free-running, both by the cost model's clock: {comparison.exact}")
        return
    _print_forced(console, comparison)
    _print_free(console, comparison)


def _print_forced(console: Console, comparison: Comparison) -> None:
    say(console, f"teacher-forced: {comparison.profile_name} ({comparison.profile.label}) on the live plans")
    console.print(_forced_table(comparison.forced, comparison.live.clock))
    if comparison.forced.num_failed:
        say(console, f"{comparison.forced.num_failed} iterations that failed requests are left out")


def _forced_table(forced: Forced, clock: str) -> Table:
    headings = ("number", f"measured\n({clock}, ms)", "simulated\n(ms)", "error\n(%)", "mean abs.\n(%)", "noise\n(%)")
    table = _table("stage", headings)
    for name, stage in forced.stages.items():
        table.add_row(name, *_errors(stage.errors()))
        shapes = by_shape(name, stage)
        total = float(stage.measured.sum()) / 1e6
        shown = [(s, e) for s, e in shapes if e.measured_ms * e.iterations >= SHOWN * total][:MOST_SHAPES]
        for shape, errors in shown if len(shapes) > 1 else ():
            table.add_row(f"  {shape}", *_errors(errors))
    return table


def _errors(errors: Errors) -> list[str]:
    percents = [signed(errors.error_percent), _plain(errors.mape_percent), _plain(errors.noise_percent)]
    return [f"{errors.iterations:,}", f"{errors.measured_ms:,.3f}", f"{errors.predicted_ms:,.3f}", *percents]


def _print_free(console: Console, comparison: Comparison) -> None:
    free = comparison.free
    rest = f"; {free.num_left_out:,} others left out" if free.num_left_out else ""
    priced = comparison.simulated.run.scenario.profile
    title = f"free-running, simulated with {priced}: {free.num_requests:,} requests that finished in both{rest}"
    print_sheet(console, figures(free)._replace(title=title))
    if comparison.measured is None:
        say(console, "no ITL: without a twin that is identical nobody knows when each token came")


def print_ranks(console: Console, ranks: Mapping[str, float | None], labels: Sequence[str]) -> None:
    """Of several variants."""
    print_sheet(console, taus(ranks, labels))


def _table(first: str, others: Sequence[str]) -> Table:
    table = new_table()
    table.add_column(first, min_width=18)  # shapes are folded where the terminal is narrow
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
