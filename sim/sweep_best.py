"""Which settings of a sweep are the best, and how sure that is, by the spread over replications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.student import half_width
from sim.sweep_file import MaxGoodput
from sim.sweep_points import Point, Points, Setting
from sim.sweep_row import FINISHED, Row
from sim.sweep_search import Ascents, Search
from sim.yaml_text import written

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with half the width of its 95 % interval; None where one replication tells no spread."""

    mean: float
    half: float | None


@dataclass(frozen=True)
class Ranked:
    """One setting with its figure: of all replications, and by how much it is off the best one's."""

    setting: Setting
    figure: Estimate
    behind: Estimate | None  # paired by replication, since they have their seeds in common; None for the best


def best_first(points: Points, search: Search, rows: Sequence[tuple[Point, Row]]) -> tuple[str, list[Ranked]]:
    """What settings are ranked by, and those that finished with all their seeds and have it."""
    sweep = points.sweep
    if isinstance(search, Ascents) and isinstance(sweep.search, MaxGoodput):
        rates = [(a.setting, a.climb.good if a.climb.bad is not None else None) for a in search.ascents]
        return f"rate with {100 * sweep.search.attainment:g} % within the SLOs", ranked(by_setting(rates))
    figure = _figure(points)
    values = [(point.setting, row.get(figure) if row["verdict"] == FINISHED else None) for point, row in rows]
    return figure, ranked(by_setting(values), least=sweep.best is not None and sweep.best.minimise is not None)


def _figure(points: Points) -> str:
    if points.sweep.best is not None:
        return points.sweep.best.figure
    return "request_goodput" if points.scenario.slo.per_request else "request_throughput"


def by_setting(values: Iterable[tuple[Setting, float | None]]) -> list[tuple[Setting, Floats]]:
    """The values of all replications together, in their order, of settings that miss none."""
    settings: dict[str, tuple[Setting, list[float | None]]] = {}
    for setting, value in values:
        settings.setdefault(written(dict(setting)), (setting, []))[1].append(value)
    return [(setting, np.array(those, float)) for setting, those in settings.values() if None not in those]


def ranked(settings: Sequence[tuple[Setting, Floats]], *, least: bool = False) -> list[Ranked]:
    """Best first; `settings` have a value for each replication, all of them for the same ones."""
    found = sorted(settings, key=lambda pair: pair[1].mean() if least else -pair[1].mean())
    best = found[0][1] if found else np.zeros(0)
    return [
        Ranked(setting, _estimate(values), _estimate(values - best) if rank else None)
        for rank, (setting, values) in enumerate(found)
    ]


def _estimate(values: Floats) -> Estimate:
    return Estimate(float(values.mean()), half_width(values.tolist()))
