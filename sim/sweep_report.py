"""What a sweep came to: its settings in order, the best one as a scenario, and what did not finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from sim.output import scenario_text
from sim.published_table import number
from sim.resolve import resolve
from sim.sheet import Sheet, print_sheet
from sim.sweep_best import Estimate, best_first
from sim.sweep_file import MaxGoodput
from sim.sweep_points import Point, Points, Setting, label
from sim.sweep_row import FINISHED, Row
from sim.sweep_search import Ascent, Ascents, Search
from sim.tables import say
from sim.yaml_text import written

MOST = 10  # settings that are printed; the data set has all
MOST_REASONS = 5
UNSERVED = ("failed", "rejected", "cancelled", "stalled", "unfinished")


class Report:
    """Of finished points, each with its row."""

    def __init__(self, points: Points, search: Search, rows: Sequence[tuple[Point, Row]]) -> None:
        self._points, self._search, self._rows = points, search, rows
        self.figure, self.ranked = best_first(points, search, rows)

    def print(self, console: Console) -> None:
        """The best settings and how sure they are, then what did not finish."""
        print_sheet(console, self._sheet())
        if self._points.replications == 1:
            say(console, "one replication does not tell chance from effect; replications: 5 does")
        for line in (*self._searches(), *self._unfinished()):
            say(console, line)

    @property
    def _words(self) -> str:
        number = self._points.replications
        settings = f"the best {MOST} of {len(self.ranked)} settings" if len(self.ranked) > MOST else "best first"
        return f"{settings}, {number} replication{'s' * (number > 1)} each"

    def _sheet(self) -> Sheet:
        headings = ["setting", "mean", "95 %", "off the best", "95 %"]
        shown = self.ranked[:MOST]
        rows = [[label(one.setting), *_cells(one.figure), *_off(one.behind)] for one in shown]
        unserved = [self._unserved(one.setting) for one in shown]
        if any(unserved):
            headings.append("not served (%)")
            rows = [[*row, f"{share:.1f}"] for row, share in zip(rows, unserved, strict=True)]
        return Sheet(f"{self.figure}, {self._words}", headings, rows)

    def _unserved(self, setting: Setting) -> float:
        """Percent of the requests, over all seeds, that got no whole answer: latencies are those of the others."""
        if isinstance(self._search, Ascents):  # whose points are of many rates
            return 0.0
        figures = [row for point, row in self._rows if point.setting == setting]
        unserved = sum(row.get(name) or 0 for row in figures for name in UNSERVED)
        return 100 * unserved / max(1, unserved + sum(row.get("completed") or 0 for row in figures))

    def _searches(self) -> list[str]:
        """Those that did not end with two rates close enough, and why."""
        ascents = self._search.ascents if isinstance(self._search, Ascents) else []
        return list(dict.fromkeys(_told(ascent) for ascent in ascents if not ascent.climb.close))

    def _unfinished(self) -> list[str]:
        """How many points did not finish, by verdict and reason."""
        told = Counter((row["verdict"], row["reason"]) for _, row in self._rows if row["verdict"] != FINISHED)
        lines = [
            f"{count} point{'s' * (count != 1)} {verdict}: {reason}"
            for (verdict, reason), count in told.most_common(MOST_REASONS)
        ]
        rest = len(told) - len(lines)
        return [*lines, *([f"and {rest} more reasons, see column reason"] if rest > 0 else [])]

    def best_text(self) -> str | None:
        """The best setting as a scenario, with what it came to above it; None where no setting finished."""
        if not self.ranked:
            return None
        best, points = self.ranked[0], self._points
        setting = dict(best.setting)
        if isinstance(points.sweep.search, MaxGoodput):
            setting[points.sweep.search.rate] = self._good_for_all(best.setting)
        knobs = [f"#   {path}: {written(value)}" for path, value in setting.items()]
        scenario = resolve(points.changed(setting, points.scenario.seed, points.replications)).scenario
        return "\n".join([f"# {self._headline(best.figure)}", *knobs, scenario_text(scenario).partition("\n")[2]])

    def _good_for_all(self, setting: Setting) -> float:
        """The greatest rate that was found good with each seed."""
        assert isinstance(self._search, Ascents)
        found = [ascent.climb.good for ascent in self._search.ascents if ascent.setting == setting]
        return min(rate for rate in found if rate is not None)

    def _headline(self, figure: Estimate) -> str:
        of = f"{self._points.sweep.name}: the best of {len(self.ranked)} settings"
        spread = f", 95 % {_interval(figure)} over {self._points.replications} replications" if figure.half else ""
        unserved = self._unserved(self.ranked[0].setting)
        aside = f"; {unserved:.1f} % of its requests were not served" if unserved else ""
        return f"{of}: {self.figure} {number(figure.mean)}{spread}{aside}"


def _told(ascent: Ascent) -> str:
    climb = ascent.climb
    if climb.bad is None:
        return f"{label(ascent.setting)}: no rate up to {climb.good:g} was too much; more requests may tell"
    if climb.good is None:
        return f"{label(ascent.setting)}: no rate down to {climb.bad:g} was good"
    return f"{label(ascent.setting)}: between {climb.good:g} and {climb.bad:g} when max_simulations were done"


def _cells(figure: Estimate) -> list[str]:
    return [number(figure.mean), _interval(figure)]


def _interval(figure: Estimate) -> str:
    if figure.half is None:
        return "-"
    return f"{number(figure.mean - figure.half)} to {number(figure.mean + figure.half)}"


def _off(behind: Estimate | None) -> list[str]:
    if behind is None:
        return ["", ""]
    if behind.half is None:
        return [f"{behind.mean:+.4g}", "-"]
    return [f"{behind.mean:+.4g}", f"{behind.mean - behind.half:+.4g} to {behind.mean + behind.half:+.4g}"]
