"""One `tandem compare` with a live run: three checks of it, or of each variant; printed, written and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.compare import Comparison, compare
from sim.compare_pairs import Pairs
from sim.compare_tables import print_comparison, print_ranks
from sim.fidelity import fidelity_page
from sim.files import write_json, write_text, writing
from sim.live_output import COMPARISON, FIDELITY, remove_comparison_plots
from sim.printing import printing
from sim.profiles import from_here, load_profile
from sim.ranks import ranks
from sim.recorded import read_live, read_run
from sim.tables import new_console, say
from workloads.errors import InputError

DIFFERENT = 1  # exit code
FEWEST = 3  # variants that can be in an order: of two it would be a coin's


class CompareCommand:
    """Raises InputError for wrong input, before anything is printed or written."""

    def __init__(self, pairs: Pairs, profile: str | None, plots: bool) -> None:
        self.live = pairs.second
        self.plots = plots
        self.console = new_console()
        self.profile_name = from_here(profile) if profile else ""
        self.profile = load_profile(self.profile_name) if profile else None
        self.left_out = pairs.left_out
        self.comparisons = [self._compare(*pair) for pair in pairs.folders]
        measured = {c.label: c.free for c in self.comparisons if c.exact is None}
        self.ranks = ranks(measured) if len(measured) >= FEWEST else {}

    def _compare(self, label: str, run: Path, live: Path) -> Comparison:
        return compare(read_run(run), self._read_live(live), self.profile, self.profile_name, label)

    def _read_live(self, live: Path) -> Any:
        """On another machine the profile may not be where the live run found it: the one given takes its place."""
        try:
            return read_live(live, {})
        except InputError as error:
            if self.profile is None or "profile" not in str(error):
                raise
            return read_live(live, {"profile": self.profile_name})

    def __call__(self) -> int:
        """Write, draw and print; returns the exit code."""
        with writing(self.live):
            remove_comparison_plots(self.live)
            write_json(self._content(), self.live / COMPARISON)
            write_text(self.live / FIDELITY, fidelity_page(self.comparisons, self.ranks))
            plots = self._write_plots()
        with printing():
            self._report(plots)
        return 0 if all(comparison.identical for comparison in self.comparisons) else DIFFERENT

    def _content(self) -> dict[str, Any]:
        if not self.comparisons[0].label:
            return self.comparisons[0].content()
        variants = {comparison.label: comparison.content() for comparison in self.comparisons}
        return {"variants": variants, "kendall_tau": self.ranks, "left_out": self.left_out}

    def _write_plots(self) -> list[Path]:
        if not self.plots:
            return []
        from sim.plot_compare import write_comparison_plots  # with matplotlib, which takes half a second

        measured = [comparison for comparison in self.comparisons if comparison.exact is None]
        return write_comparison_plots(measured, self.live / "plots")

    def _report(self, plots: Sequence[Path]) -> None:
        for comparison in self.comparisons:
            print_comparison(self.console, comparison)
        if self.ranks:
            print_ranks(self.console, self.ranks, [comparison.label for comparison in self.comparisons])
        if self.left_out:
            say(self.console, f"in one of both folders only: {', '.join(self.left_out)}")
        say(self.console, f"{self.live / COMPARISON}, {self.live / FIDELITY}")
        if plots:
            say(self.console, f"{len(plots)} plots: {self.live / 'plots'}")
