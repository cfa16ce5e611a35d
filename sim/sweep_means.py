"""What plots of a sweep are drawn from: its settings that finished, each with the means over its replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.slo import SLO
from sim.sweep_knobs import Knob, Range
from sim.sweep_points import label
from sim.sweep_row import FINISHED

LOADS = ("rate", "users", "speedup")  # the last parts of paths that say how much is asked of the server


@dataclass(frozen=True, eq=False)
class Swept:
    """A sweep as plots see it."""

    name: str
    slo: SLO
    knobs: Mapping[str, Knob]
    means: pd.DataFrame  # see `means`
    figure: str  # what settings are ranked by
    scores: Sequence[tuple[Mapping[str, Any], float]]  # settings with their figures, best first

    @property
    def load(self) -> str | None:
        """The knob that says how much is asked of the server, where it has several values."""
        columns = {path: self.means[path] for path in self.knobs if path.split(".")[-1] in LOADS}
        return next((path for path, column in columns.items() if column.dtype == float and column.nunique() > 1), None)

    @property
    def apart(self) -> bool:
        """Whether a row is of one replication."""
        return bool(self.means["replication"].any())

    @property
    def score_knobs(self) -> list[str]:
        """Those that ranked settings have: where the rate is searched for, it is none of them."""
        return list(self.scores[0][0]) if self.scores else []

    def pair(self) -> tuple[str, str] | None:
        """Two knobs of several values, ranges and others before the load."""
        several = [path for path in self.score_knobs if isinstance(knob := self.knobs[path], Range) or len(knob) > 1]
        several.sort(key=lambda path: path == self.load)
        return (several[1], several[0]) if len(several) > 1 else None

    def words(self, without: str = "") -> pd.Series[str]:
        """What to call each row of `means`."""
        paths = [path for path in self.knobs if path != without]
        rows = [{path: row[path] for path in paths} for row in self.means.to_dict("records")]
        return pd.Series([label(row) for row in rows], index=self.means.index, dtype=str)

    def in_order(self, without: str) -> list[str]:
        """What to call the settings of all knobs but one, best first; those that have no figure come last."""
        others = [{path: value for path, value in setting.items() if path != without} for setting, _ in self.scores]
        known = dict.fromkeys(self.words(without))
        return list(dict.fromkeys([*(words for other in others if (words := label(other)) in known), *known]))


def means(table: pd.DataFrame, knobs: Sequence[str], *, apart: bool = False) -> pd.DataFrame:
    """A row for each setting that finished with all its seeds: its knobs, and every figure's mean over them.

    With `apart` each replication is a row of its own, where they need not have the same settings.
    """
    table = table if apart else table.assign(replication=0)
    by = [*knobs, "replication"]
    good = table["verdict"].eq(FINISHED).groupby([table[name] for name in by], sort=False, dropna=False)
    kept = table[good.transform("all")].drop(columns="seed")
    return kept.groupby(by, sort=False, dropna=False).mean(numeric_only=True).reset_index()


def front(cost: NDArray[np.float64], gain: NDArray[np.float64]) -> NDArray[np.int64]:
    """Places of those that nobody beats in both, from the least cost up."""
    order = np.lexsort((-gain, cost))
    before = np.maximum.accumulate(np.append(-np.inf, gain[order]))[:-1]
    return order[gain[order] > before]
