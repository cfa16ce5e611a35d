"""Two scenarios simulated several times each: how every figure changes, and whether the seeds alone could do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.compare_free import Figure
from sim.compare_pair import change
from sim.ensemble_output import MEMBERS
from sim.recorded import read_parquet
from sim.same_scenario import differences
from sim.scenario import Scenario
from sim.student import half_width, welch_half_width
from workloads.errors import InputError

Floats = NDArray[np.float64]

SHOWN = (
    *(f"{statistic}_{name}_ms" for name in ("ttft", "itl", "tpot", "e2el") for statistic in ("mean", "p50", "p99")),
    *("request_throughput", "output_throughput", "request_goodput", "slo_attainment"),
)


@dataclass(frozen=True, eq=False)
class Seeds:
    """From the first scenario's means to the second's; intervals are of the seeds."""

    label: str
    folders: tuple[Path, Path]
    changes: Mapping[str, tuple[str, str]]
    paired: bool  # whether both have the same seeds, and so much in common
    sizes: tuple[int, int]
    figures: dict[str, Figure]

    def content(self) -> dict[str, Any]:
        """As it stands in `compare.json`."""
        first, second = map(str, self.folders)
        about = {"changes": {path: list(values) for path, values in self.changes.items()}, "paired": self.paired}
        figures = {name: change(figure) for name, figure in self.figures.items()}
        return {"first": first, "second": second, **about, "replications": list(self.sizes), "figures": figures}


def compare_seeds(first: Path, second: Path, label: str = "") -> Seeds:
    """Raises InputError where one of them is not whole."""
    before, after = _members(first), _members(second)
    paired = before.index.equals(after.index)
    figures = {name: _figure(before[name].to_numpy(float), after[name].to_numpy(float), paired) for name in SHOWN}
    return Seeds(
        label=label,
        folders=(first, second),
        changes=differences(*(Scenario.load(folder / "scenario.yaml") for folder in (first, second))),
        paired=paired,
        sizes=(len(before), len(after)),
        figures={name: figure for name, figure in figures.items() if figure.measured is not None},
    )


def _members(folder: Path) -> pd.DataFrame:
    """The runs' figures by their seeds; those of runs that did not finish could not be compared."""
    table = read_parquet(folder / MEMBERS)
    if missing := [name for name in ("seed", "verdict", *SHOWN) if name not in table]:
        raise InputError(f"{folder / MEMBERS}: is no such table: column {missing[0]} is missing")
    if (table["verdict"] != "finished").any():
        raise InputError(f"{folder}: not all of its runs finished")
    return table.set_index("seed").sort_index()


def _figure(first: Floats, second: Floats, paired: bool) -> Figure:
    """Means, the change in percent of the first, and its interval: seed by seed where the seeds are the same."""
    if np.isnan(first).any() or np.isnan(second).any():
        return Figure(None, None, None, None, None)
    before, after = float(first.mean()), float(second.mean())
    if before == 0:
        return Figure(after, before, after - before, None, None)
    percent = 100 * (after - before) / before
    half = half_width((second - first).tolist()) if paired else welch_half_width(first.tolist(), second.tolist())
    interval = None if half is None else (percent - 100 * half / before, percent + 100 * half / before)
    return Figure(after, before, after - before, percent, interval)
