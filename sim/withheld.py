"""Timings withheld from a fit and predicted by it: mean errors per stage, and the spread that a profile states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.figures import Spread, StageSpread, Stated

Predictions = Mapping[str, NDArray[np.float64]]  # milliseconds, by what predicts them
Predict = Callable[[pd.DataFrame, pd.DataFrame], Predictions]  # of rows to fit and rows to price

STAGES = {"encoder": "encode", "prefill": "prefill", "decode": "decode", "mixed": "mixed"}  # of timings, of a spread
BIAS = "root mean square of the mean deviations of {groups} withheld groups, less what noise adds to it"
NOISE = "standard deviation of {rows} withheld timings about the means of their groups"


def withhold(rows: pd.DataFrame, kinds: Mapping[str, pd.Series[int]], predict: Predict) -> pd.DataFrame:
    """Of each kind, such as sizes, every value in turn is withheld: a row comes out once for each kind.

    Adds `kind`, `value` and the predictions (ms); where all rows have one value, it is predicted from itself.
    """
    return pd.concat(part for kind, values in kinds.items() for part in _each_value(rows, kind, values, predict))


def _each_value(rows: pd.DataFrame, kind: str, values: pd.Series[int], predict: Predict) -> Iterator[pd.DataFrame]:
    for value in values.unique():
        chosen = values == value
        rest, part = rows[~chosen] if not chosen.all() else rows, rows[chosen]
        yield part.assign(kind=kind, value=value, **predict(rest, part))


def mean_errors(tested: pd.DataFrame, by: str = "predicted") -> dict[str, float]:
    """Mean absolute errors in percent of the measured time, by stage, of the kind of withholding that is hardest."""
    error = 100 * (tested[by] / tested.total_ms - 1).abs()
    means = error.groupby([tested.stage, tested.kind]).mean().groupby("stage").max()
    return {str(stage): float(mean) for stage, mean in means.items()}


def spread(tested: pd.DataFrame) -> Spread:
    """Of timings over predictions; what was withheld together, of one stage, is a group."""
    return Spread.model_validate({to: _spread(tested[tested.stage == stage]) for stage, to in STAGES.items()})


def _spread(tested: pd.DataFrame) -> StageSpread:
    """Components of variance of a one-way layout with random groups: between groups, and within them."""
    groups: Any = (tested.total_ms / tested.predicted - 1).groupby([tested.kind, tested.value])
    sizes, means = groups.size(), groups.mean()
    within = float(groups.var(ddof=0) @ sizes) / max(1, sizes.sum() - len(sizes))
    between = float(np.mean(means**2) - within * np.mean(1 / sizes))
    return StageSpread(
        bias=_stated(max(0.0, between), BIAS.format(groups=len(sizes))),
        noise=_stated(within, NOISE.format(rows=sizes.sum())),
    )


def _stated(variance: float, source: str) -> Stated[float]:
    return Stated(value=round(float(np.sqrt(variance)), 4), unit="1", source=source)
