"""Which points a sweep simulates: all of a grid, some drawn at random, or those on the way to the greatest rate."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sim.sweep_climb import Climb
from sim.sweep_file import MaxGoodput, Random
from sim.sweep_knobs import Knob, Range
from sim.sweep_points import Point, Points, Setting
from sim.sweep_row import FINISHED, Row
from sim.yaml_text import shown, written
from workloads.errors import InputError

Rounds = Generator[list[Point], Sequence[Row], None]  # gives points, is sent their rows


class Search(Protocol):
    """One way of going through the settings of the knobs."""

    @property
    def knobs(self) -> Mapping[str, Knob]:
        """Those that its points have."""
        ...

    @property
    def left(self) -> int:
        """How many points are to come after the round under way, as far as one can tell."""
        ...

    def rounds(self) -> Rounds:
        """Points to simulate together, then the next ones that follow from how they turned out."""
        ...


def search_of(points: Points) -> Search:
    """The sweep's. Raises InputError where a knob has a value that fits nowhere."""
    search = points.sweep.search
    return Ascents(points, search) if isinstance(search, MaxGoodput) else All(points)


class All:
    """Every setting, each replicated."""

    left = 0

    def __init__(self, points: Points) -> None:
        search, self.knobs = points.sweep.search, points.sweep.knobs
        settings = _drawn(self.knobs, search) if isinstance(search, Random) else _product(self.knobs)
        self._points = [point for setting in settings for point in points.of(setting)]
        _check(self._points, self.knobs)

    def rounds(self) -> Rounds:
        yield self._points


@dataclass(frozen=True)
class Ascent:
    """The search for one setting's greatest rate, with the seed of one replication."""

    setting: Setting
    replication: int
    climb: Climb


class Ascents:
    """For every setting and replication a search of its own."""

    def __init__(self, points: Points, search: MaxGoodput) -> None:
        if not points.scenario.slo.per_request:
            raise InputError(f"{points.sweep.scenario}: slo: max_goodput needs a bound on ttft, tpot or e2el")
        self.knobs: Mapping[str, Knob] = {**points.sweep.knobs, search.rate: (1.0,)}
        self._points, self._search = points, search
        start = search.start or _number(points, search.rate)
        self.ascents = [
            Ascent(setting, replication, Climb(start, search.tolerance, search.max_simulations))
            for setting in _product(points.sweep.knobs)
            for replication in range(points.replications)
        ]
        _check([self._point(ascent) for ascent in self.ascents], points.sweep.knobs)
        self._check_fractions()

    def _check_fractions(self) -> None:
        """Raises InputError where the rate takes whole numbers only: between two of them nothing is to be found."""
        first = self.ascents[0]
        if self._point(first).reason:
            return
        near = {**first.setting, self._search.rate: first.climb.rate * (1 + 1e-6) + 1e-9}
        if reason := self._points.point(near, 0).reason:
            raise InputError(f"search.rate: {self._search.rate} takes no fractions, which max_goodput tries: {reason}")

    @property
    def left(self) -> int:
        return sum(max(0, ascent.climb.left - 1) for ascent in self.ascents)

    def rounds(self) -> Rounds:
        while going := [ascent for ascent in self.ascents if not ascent.climb.done]:
            rows = yield [self._point(ascent) for ascent in going]
            for ascent, row in zip(going, rows, strict=True):
                ascent.climb.tell(_is_good(row, self._search.attainment))

    def _point(self, ascent: Ascent) -> Point:
        return self._points.point({**ascent.setting, self._search.rate: ascent.climb.rate}, ascent.replication)


def _is_good(row: Row, attainment: float) -> bool:
    """Whether the run went to its end, and enough of its requests kept their SLOs."""
    attained = row.get("slo_attainment")
    return row["verdict"] == FINISHED and attained is not None and attained >= attainment


def _product(knobs: Mapping[str, Knob]) -> list[Setting]:
    """Every combination of the values, the last knob varying fastest."""
    lists = [knob for knob in knobs.values() if not isinstance(knob, Range)]
    return [dict(zip(knobs, values, strict=True)) for values in itertools.product(*lists)]


def _drawn(knobs: Mapping[str, Knob], search: Random) -> list[Setting]:
    """The first are the same when more are drawn; of equal ones there is one."""
    rng = np.random.default_rng(search.seed)
    settings = [{path: _draw(knob, rng) for path, knob in knobs.items()} for _ in range(search.settings)]
    return list({written(setting): setting for setting in settings}.values())


def _draw(knob: Knob, rng: np.random.Generator) -> Any:
    return knob.draw(rng) if isinstance(knob, Range) else knob[rng.integers(len(knob))]


def _number(points: Points, path: str) -> float:
    """The scenario's value there."""
    value: Any = points.scenario.model_dump()
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InputError(f"search.rate: {path} is {shown(value)} in the scenario, not a rate; say where to start")
    return float(value)


def _check(points: Sequence[Point], knobs: Mapping[str, Knob]) -> None:
    """A value with which no point is a scenario is wrong; one that does not go with some others makes rows that say so.

    Of a range, no number may be the one; then it is the range that is wrong.
    """
    wrong: dict[str, str] = {}
    for point in points:
        for name in _values(point, knobs):
            wrong[name] = wrong.get(name, point.reason) and point.reason
    if reason := next((reason for reason in wrong.values() if reason), ""):
        raise InputError(reason)


def _values(point: Point, knobs: Mapping[str, Knob]) -> list[str]:
    """What a point takes of each knob."""
    those = {path: value for path, value in point.setting.items() if path in knobs}
    return [path if isinstance(knobs[path], Range) else written({path: value}) for path, value in those.items()] or [""]
