"""A cost model fitted to timings: its formula, and a table in the place of whatever part a table predicts better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from sim.cost_tables import Tables
from sim.fit_trial import FORMULA, TABLE, Trial
from sim.regression import Fit, Floats, predict
from sim.withheld import mean_errors

PARTS = {"encode": ("encoder",), "gemm": ("prefill", "decode")}  # and the stages whose errors choose its form


@dataclass(frozen=True)
class CostFit:
    """What a profile states of its timings."""

    coefficients: Fit
    tables: Tables
    tested: pd.DataFrame  # rows with what was `predicted` by fits that had not seen them
    compared: Mapping[str, Mapping[str, float]]  # the errors that chose each part's form, in percent

    def predict(self, rows: pd.DataFrame) -> Floats:
        """Milliseconds of each row."""
        return predict(self.coefficients, rows, self.tables)


def fit_parts(rows: pd.DataFrame) -> CostFit:
    """Both forms from all rows; of each part, the one that predicts withheld rows better is kept."""
    trial = Trial(rows)
    tested = trial.tested()
    compared = {part: _errors(tested, part) for part in PARTS if getattr(trial.tables, part)}
    better = [part for part, errors in compared.items() if errors[TABLE] < errors[FORMULA]]
    tables = Tables(**{part: getattr(trial.tables, part) for part in better})
    stages = {stage for stage in tested.stage.unique() if ("encode" if stage == "encoder" else "gemm") in better}
    predicted = tested[TABLE].where(tested.stage.isin(stages), tested[FORMULA])
    return CostFit(trial.coefficients, tables, tested.assign(predicted=predicted), compared)


def _errors(tested: pd.DataFrame, part: str) -> dict[str, float]:
    """Of both forms of a part, the mean over its stages; as exact as it is stated, so that a tie leaves the formula."""
    of = tested[tested.stage.isin(PARTS[part])]
    errors = {form: mean_errors(of, form) for form in (FORMULA, TABLE)}
    return {form: round(sum(stages.values()) / len(stages), 2) for form, stages in errors.items()}
