"""Predicts the rows of a real server's figures and lays measured and simulated ones beside each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sim.ensemble import Ensemble
from sim.replications import Several, ensembles
from sim.resolve import Resolved, resolve
from sim.serving_fit import is_fitted
from sim.serving_rows import FIGURES, ServingRow
from sim.serving_scenario import scenario_of
from sim.sheet import Sheet
from workloads.errors import InputError

DRAWS = 8  # of each row
CROWD = 128  # users: all requests at once
TITLES = dict(zip(FIGURES, ("requests/s", "TTFT mean (ms)", "ITL mean (ms)", "E2E mean (ms)"), strict=True))


class Prediction(NamedTuple):
    """A row, its scenario, and what so many draws of it come to."""

    row: ServingRow
    resolved: Resolved
    draws: Ensemble

    @property
    def fitted(self) -> bool:
        return is_fitted(self.row)

    def mean(self, name: str) -> float:
        """NaN where it is undefined, as the ITL of answers of one token."""
        value = self.draws.means[name]
        return math.nan if value is None else value

    def error(self, name: str) -> float:
        """Of the draws' mean, in percent of what was measured."""
        return 100 * (self.mean(name) / self.row.measured[name] - 1)


def predict(
    rows: Sequence[ServingRow], jobs: int | None = None, told: Callable[[int], None] = lambda _: None
) -> list[Prediction]:
    """Every row, by the scenario of its engine; `told` hears how many runs are done. InputError for what is wrong."""
    several = [Several(_resolved(row), DRAWS, uncertain=True) for row in rows]
    parts = zip(rows, several, ensembles(several, jobs, told), strict=True)
    predictions = [Prediction(row, one.resolved, draws) for row, one, draws in parts]
    for prediction in predictions:
        if (done := prediction.mean("completed")) < prediction.row.requests:
            row = prediction.row
            raise InputError(f"{row.place}: simulated, only {done:g} of its {row.requests} requests finish, on average")
    return predictions


def _resolved(row: ServingRow) -> Resolved:
    try:
        return resolve(scenario_of(row))
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None


def mean_error(some: Sequence[Prediction], name: str) -> float:
    """Mean of the absolute errors, in percent."""
    errors = [abs(error) for prediction in some if not math.isnan(error := prediction.error(name))]
    return float(np.mean(errors)) if errors else math.nan


def fidelity(engine: str, predictions: Sequence[Prediction]) -> Sheet:
    """Measured, simulated and error of each figure, a line a row; then mean absolute errors."""
    headings = ["load", "", *(words for title in TITLES.values() for words in (title, "simulated", "error"))]
    rows = [[p.row.load, "fitted" if p.fitted else "", *_cells(p)] for p in predictions]
    means = [_mean_errors(label, some) for label, some in _groups(predictions) if some]
    title = f"{engine}: measured, with half the spread of the runs; simulated, with 95 % of the draws; error in %"
    return Sheet(title, headings, [*rows, *means], words=2)


def _cells(prediction: Prediction) -> list[str]:
    cells, row = [], prediction.row
    for name in FIGURES:
        spread = f" ± {50 * row.spread:.0f} %" if name == "request_throughput" else ""
        simulated = prediction.draws.written(name, number)
        cells += [f"{number(row.measured[name])}{spread}", simulated, _signed(prediction.error(name))]
    return cells


def _groups(predictions: Sequence[Prediction]) -> list[tuple[str, list[Prediction]]]:
    predicted = [p for p in predictions if not p.fitted]
    calm = [p for p in predicted if p.row.concurrency < CROWD]
    fitted = [p for p in predictions if p.fitted]
    return [("predicted", predicted), (f"predicted, under {CROWD} users", calm), ("fitted", fitted)]


def _mean_errors(label: str, some: Sequence[Prediction]) -> list[str]:
    cells = [f"mean absolute error, {label}: {len(some)} rows", ""]
    for name in FIGURES:
        error = mean_error(some, name)
        cells += ["", "", "-" if math.isnan(error) else f"{error:.1f}"]
    return cells


def _signed(error: float) -> str:
    return "-" if math.isnan(error) else f"{error:+.1f}"


def number(value: float) -> str:
    """Three digits, or all of them before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
