"""One `tandem compare` without a live run: two simulations, or a simulation beside a measured run, or each variant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from sim.compare_free import Figure
from sim.compare_pair import Pair, compare_pair, is_significant
from sim.compare_pairs import Pairs
from sim.compare_seeds import Seeds, compare_seeds
from sim.compare_tables import figure_title
from sim.ensemble_output import MEMBERS
from sim.files import write_json, writing
from sim.live_output import COMPARISON, remove_comparison_plots
from sim.plotted import Runs
from sim.printing import printing
from sim.published_table import number
from sim.tables import new_console, new_table, say
from workloads.errors import InputError

PLOT = "compare_cdfs"


class PairCommand:
    """Raises InputError for wrong input, before anything is printed or written."""

    def __init__(self, pairs: Pairs, profile: str | None, plots: bool) -> None:
        if profile is not None:
            raise InputError("--profile: prices the plans of a live run, and the second folder is none")
        self.second = pairs.second
        self.plots = plots
        self.console = new_console()
        self.left_out = pairs.left_out
        self.pairs = [_compare(label, first, second) for label, first, second in pairs.folders]

    def __call__(self) -> int:
        """Write, draw and print; returns the exit code."""
        with writing(self.second):
            remove_comparison_plots(self.second)
            write_json(self._content(), self.second / COMPARISON)
            plots = self._write_plots()
        with printing():
            self._report(plots)
        return 0

    def _content(self) -> dict[str, Any]:
        if not self.pairs[0].label:
            return self.pairs[0].content()
        return {"variants": {pair.label: pair.content() for pair in self.pairs}, "left_out": self.left_out}

    def _write_plots(self) -> list[Path]:
        """Latencies of single runs over one another."""
        singles = [pair for pair in self.pairs if isinstance(pair, Pair)]
        if not self.plots or not singles:
            return []
        from sim.plot_latencies import latency_cdfs  # with matplotlib, which takes half a second
        from sim.plot_style import save
        from sim.plots import suffixes

        ends = suffixes([pair.label for pair in singles])
        folder = self.second / "plots"
        return [
            save(latency_cdfs(_named(pair)), folder / f"{PLOT}{end}.png")
            for pair, end in zip(singles, ends, strict=True)
        ]

    def _report(self, plots: list[Path]) -> None:
        for pair in self.pairs:
            self._say(pair)
        if self.left_out:
            say(self.console, f"in one of both folders only: {', '.join(self.left_out)}")
        say(self.console, str(self.second / COMPARISON))
        for path in plots:
            say(self.console, str(path))

    def _say(self, pair: Pair | Seeds) -> None:
        if pair.label:
            say(self.console, f"{pair.label}:")
        for path, (before, after) in pair.changes.items():
            say(self.console, f"{path}: {before} -> {after}")
        say(self.console, _counts(pair))
        figures = pair.free.figures if isinstance(pair, Pair) else pair.figures
        if isinstance(pair, Pair) and pair.measured:
            self.console.print(_measured_table(figures))
        else:
            self.console.print(_change_table(figures, isinstance(pair, Seeds)))
        for line in _asides(pair):
            say(self.console, line)


def _compare(label: str, first: Path, second: Path) -> Pair | Seeds:
    several = [(folder / MEMBERS).exists() for folder in (first, second)]
    if all(several):
        return compare_seeds(first, second, label)
    if any(several):
        one, other = (first, second) if several[0] else (second, first)
        raise InputError(f"{one}: holds several runs, {other} one; compare that with one of the several")
    return compare_pair(first, second, label)


def _named(pair: Pair) -> Runs:
    """What the two are called in a plot: what sets their folders apart."""
    first, second = pair.folders
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    return list(zip(names, pair.views, strict=True))


def _counts(pair: Pair | Seeds) -> str:
    if isinstance(pair, Seeds):
        same = "the same seeds, compared seed by seed" if pair.paired else "other seeds"
        return f"{pair.sizes[0]} runs against {pair.sizes[1]}, {same}"
    rest = f"; {pair.free.num_left_out:,} others left out" if pair.free.num_left_out else ""
    if pair.paired:
        return f"{pair.free.num_requests:,} requests that finished in both, compared one by one{rest}"
    return f"other requests in each, {pair.free.num_requests:,} finished in the one that is compared{rest}"


def _asides(pair: Pair | Seeds) -> list[str]:
    """What the intervals are not of, and what is missing."""
    if isinstance(pair, Seeds):
        return []
    told = [] if pair.measured else ["of one run each: whether other seeds say the same, replications in both tell"]
    if any(view.gaps is None for view in pair.views):
        told.append("no ITL: of one of both nobody knows when each token came")
    return told


def _measured_table(figures: Mapping[str, Figure]) -> Table:
    table = _table(("simulated", "measured", "error (%)", "95 %, requests\nredrawn"))
    for name, figure in figures.items():
        table.add_row(figure_title(name), _cell(figure.simulated), _cell(figure.measured), *_percents(figure))
    return table


def _change_table(figures: Mapping[str, Figure], seeds: bool) -> Table:
    of = "over the seeds" if seeds else "requests redrawn"
    table = _table(("first", "second", "change (%)", f"95 %, {of}", "told apart"))
    for name, figure in figures.items():
        significant = {True: "yes", False: "no", None: "-"}[is_significant(figure)]
        cells = [_cell(figure.measured), _cell(figure.simulated), *_percents(figure), significant]
        table.add_row(figure_title(name), *cells)
    return table


def _table(headings: tuple[str, ...]) -> Table:
    table = new_table()
    table.add_column("figure")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _percents(figure: Figure) -> tuple[str, str]:
    percent = "-" if figure.error_percent is None else f"{figure.error_percent:+.2f}"
    ends = figure.interval_percent
    return percent, "-" if ends is None else f"{ends[0]:+.1f} to {ends[1]:+.1f}"
