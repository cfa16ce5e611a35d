"""Fits the front end of an engine's scenario to a few measured rows of a real server; nothing else is touched.

Fitted are the costs that `front_end` of the engine's scenario names, and no others: what is before the scheduler, and
what of it is exposed in the scheduler's own loop. The GPU's times come from the profile as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.files import whole, write_json, writing
from sim.front_end import FrontEnd
from sim.replications import Several
from sim.resolve import Resolved, resolve
from sim.run import simulate_resolved
from sim.scenario import Scenario
from sim.serving_rows import ServingRow
from sim.serving_scenario import FOLDER, engine_file, scenario_of
from sim.yaml_text import written
from workloads.errors import InputError

Floats = NDArray[np.float64]
Place = tuple[str, ...]  # of a cost, inside front_end

FITTED = ((2, 16), (2, 128), (5, 32))  # images and users of the rows that are fitted to
MOST = 4  # parameters
BOUNDS = {"exposed": (1.0, 60.0), "": (10.0, 200.0)}  # ms, of what is exposed and of the rest
DRAWS = 4  # of each row: which of two stages is ahead turns on little, and a mean of draws does not jump
# relative errors that weigh alike. TTFT is left out: it is E2E less the gaps, both of which are there
TOLERANCES = {"request_throughput": 0.08, "mean_itl_ms": 0.25, "mean_e2el_ms": 0.08}
GENERATIONS, POPULATION = 12, 6  # times the number of costs
RECORD = FOLDER / "front_ends.json"
METHOD = (
    f"least squares of log(simulated / measured) over tolerance, of {', '.join(TOLERANCES)} with tolerances "
    f"{', '.join(f'{value:g}' for value in TOLERANCES.values())}; where a row's runs spread, all of them grow by "
    "the factor by which half the spread, added in quadrature, makes that of the throughput grow; simulated: mean of "
    f"{DRAWS} draws; differential evolution on logarithms, from {BOUNDS[''][0]:g} to {BOUNDS[''][1]:g} ms, and from "
    f"{BOUNDS['exposed'][0]:g} to {BOUNDS['exposed'][1]:g} ms of what is exposed"
)


class Fit(NamedTuple):
    """The costs of an engine's front end by their paths, in ms, and how far the fitted rows are from them."""

    engine: str
    costs: Mapping[str, float]
    loss: float  # mean of the squares
    evaluations: int


def is_fitted(row: ServingRow) -> bool:
    return (row.images, row.concurrency) in FITTED


def fit(engine: str, rows: Sequence[ServingRow]) -> Fit:
    """Raises InputError where the rows to fit to are not among these, or the scenario names too many costs."""
    from scipy.optimize import differential_evolution  # half a second that only a fit needs

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

    bounds = [np.log(BOUNDS["exposed" if path[0] == "exposed" else ""]).tolist() for path in paths]
    options = {"maxiter": GENERATIONS, "popsize": POPULATION, "polish": False, "rng": 1}
    found = differential_evolution(loss, bounds, **options)
    costs = {".".join(path): _rounded(value) for path, value in zip(paths, np.exp(found.x).tolist(), strict=True)}
    return Fit(engine, costs, float(found.fun), int(found.nfev))


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


def write_fits(fits: Sequence[Fit], source: Path) -> list[Path]:
    """The costs into the engines' scenarios, and how they were found beside them; returns the files."""
    with writing(FOLDER):
        for found in fits:
            _write_front_end(found)
        content = {
            "rows": {"file": source.name, "images_and_users": [list(pair) for pair in FITTED]},
            "method": METHOD,
            "engines": {
                found.engine: {"ms": dict(found.costs), "loss": round(found.loss, 4), "evaluations": found.evaluations}
                for found in fits
            },
        }
        write_json(content, RECORD)
    return [*(engine_file(found.engine) for found in fits), RECORD]


def _write_front_end(found: Fit) -> None:
    """In the place of the line that is there."""
    file = engine_file(found.engine)
    costs = {tuple(path.split(".")): value for path, value in found.costs.items()}
    front_end = with_costs(Scenario.load(file).front_end, costs)
    line = f"front_end: {written(front_end.model_dump(exclude_defaults=True))}"
    text, number = re.subn(r"^front_end: .*$", line, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if number != 1:
        raise InputError(f"{file}: front_end should stand in one line of its own")
    with whole(file) as partial:
        partial.write_text(text, encoding="utf-8")
