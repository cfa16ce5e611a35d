"""One `tandem compare` without a live run: two simulations, or a simulation beside a measured run, or each variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.compare_pair import Pair, compare_pair
from sim.compare_pair_tables import asides, changes, counts
from sim.compare_pairs import Pairs
from sim.compare_seeds import Seeds, compare_seeds
from sim.ensemble_output import MEMBERS
from sim.fidelity import figures
from sim.files import write_json, writing
from sim.live_output import COMPARISON, remove_comparison_plots
from sim.plotted import Runs
from sim.printing import printing
from sim.sheet import print_sheet
from sim.tables import new_console, say
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
        if isinstance(pair, Pair) and pair.measured:
            print_sheet(self.console, figures(pair.free)._replace(title=counts(pair)))
        else:
            print_sheet(self.console, changes(pair))
        for line in asides(pair):
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
