"""Fits the front end of an engine's scenario to a few measured rows of a real server; nothing else is touched.

Fitted are the costs that `front_end` of the engine's scenario names, and no others: what is before the scheduler, and
what of it is exposed in the scheduler's own loop. The GPU's times come from the profile as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.front_end import FrontEnd
from sim.replications import Several
from sim.resolve import Resolved, resolve
from sim.run import simulate_resolved
from sim.serving_rows import ServingRow
from sim.serving_scenario import engine_file, scenario_of
from workloads.errors import InputError

Floats = NDArray[np.float64]
Place = tuple[str, ...]  # of a cost, inside front_end

FITTED = ((2, 16), (2, 128), (5, 32))  # images and users of the rows that are fitted to
MOST = 4  # parameters
STARTS = ({"exposed": 10.0, "": 50.0}, {"exposed": 10.0, "": 70.0})  # ms, of what is exposed and of the rest
DRAWS = 8  # of each row: which of two stages is ahead turns on little, and a mean of draws does not jump
# relative errors that weigh alike. TTFT is left out: it is E2E less the gaps, both of which are there
TOLERANCES = {"request_throughput": 0.08, "mean_itl_ms": 0.25, "mean_e2el_ms": 0.08}
EVALUATIONS = 70  # of each start
METHOD = (
    f"least squares of log(simulated / measured) over tolerance, of {', '.join(TOLERANCES)} with tolerances "
    f"{', '.join(f'{value:g}' for value in TOLERANCES.values())}; where a row's runs spread, all of them grow by "
    "the factor by which half the spread, added in quadrature, makes that of the throughput grow; simulated: mean of "
    f"{DRAWS} draws; the better of two searches after Nelder and Mead on logarithms, from "
    f"{' and '.join(format(start[''], 'g') for start in STARTS)} ms, and 10 ms of what is exposed"
)


class Fit(NamedTuple):
    """The costs of an engine's front end by their paths, in ms, and how far the fitted rows are from them."""

    engine: str
    costs: Mapping[str, float]
    loss: float  # mean of the squares


def is_fitted(row: ServingRow) -> bool:
    return (row.images, row.concurrency) in FITTED


def fit(engine: str, rows: Sequence[ServingRow]) -> Fit:
    """Raises InputError where the rows to fit to are not among these, or the scenario names too many costs."""
    chosen = [row for row in rows if row.engine == engine and is_fitted(row)]
    if not chosen:
        raise InputError(f"no rows of {engine} with {' or '.join(f'{i} images and {c} users' for i, c in FITTED)}")
    resolved = [resolve(scenario_of(row, {"measure.iterations": False})) for row in chosen]
    front_end = resolved[0].scenario.front_end
    paths = costs_of(front_end.model_dump())
    if len(paths) > MOST:
        raise InputError(f"{engine_file(engine)}: front_end names {len(paths)} costs; at most {MOST} are fitted")

    def loss(logarithms: Floats) -> float:
        changed = with_costs(front_end, dict(zip(paths, np.exp(logarithms).tolist(), strict=True)))
        return float(np.mean([_distance(row, one, changed) for row, one in zip(chosen, resolved, strict=True)]))

    found = min((_search(loss, paths, start) for start in STARTS), key=lambda one: float(one.fun))
    costs = {".".join(path): _rounded(value) for path, value in zip(paths, np.exp(found.x).tolist(), strict=True)}
    return Fit(engine, costs, float(found.fun))


def _search(loss: Callable[[Floats], float], paths: Sequence[Place], start: Mapping[str, float]) -> Any:
    """The logarithms with the least loss, as scipy tells it."""
    from scipy.optimize import minimize  # half a second that only a fit needs

    begin = np.log([start["exposed" if path[0] == "exposed" else ""] for path in paths])
    simplex = np.vstack([begin, begin + math.log(1.3) * np.eye(len(paths))])
    options = {"initial_simplex": simplex, "maxfev": EVALUATIONS, "xatol": 5e-3, "fatol": 1e-3}
    return minimize(loss, begin, method="Nelder-Mead", options=options)


def costs_of(content: Mapping[str, Any], way: Place = ()) -> list[Place]:
    """Paths of all costs that are not 0, in the order in which they stand."""
    paths: list[Place] = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            paths += costs_of(value, (*way, name))
        elif name.startswith("ms_per_") and value:
            paths.append((*way, name))
    return paths


def with_costs(front_end: FrontEnd, costs: Mapping[Place, float]) -> FrontEnd:
    """The same front end with other costs."""
    content = front_end.model_dump()
    for path, value in costs.items():
        node = content
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = value
    return FrontEnd.model_validate(content)


def _distance(row: ServingRow, resolved: Resolved, front_end: FrontEnd) -> float:
    """Mean square of the figures' errors over their tolerances."""
    scenario = resolved.scenario.model_copy(update={"front_end": front_end})
    several = Several(resolved._replace(scenario=scenario), DRAWS, uncertain=True)
    summaries = [simulate_resolved(several.single(index)).summary for index in range(DRAWS)]
    simulated = {name: np.mean([summary[name] for summary in summaries]) for name in TOLERANCES}
    errors = [math.log(simulated[name] / row.measured[name]) / tolerance for name, tolerance in TOLERANCES.items()]
    return float(np.mean(np.square(errors))) / (1 + (row.spread / 2 / TOLERANCES["request_throughput"]) ** 2)


def _rounded(value: float) -> float:
    """Three digits: more would not be had again from other runs."""
    return float(f"{value:.3g}")
