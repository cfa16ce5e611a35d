"""Two runs side by side as their clients saw them: two simulations, or one beside what a benchmark measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.client_view import ClientView
from sim.compare_free import Figure, Free, Side, free
from sim.live_output import is_imported
from sim.same_scenario import differences
from sim.scenario import Measure, Scenario
from sim.seen_runs import seen_run
from workloads.errors import InputError


@dataclass(frozen=True, eq=False)
class Pair:
    """`free` has the first run over the second one where that was measured, else the second over the first."""

    label: str  # empty for a command's only pair
    folders: tuple[Path, Path]
    views: tuple[ClientView, ClientView]
    changes: Mapping[str, tuple[str, str]]  # dotted paths of the scenarios, with both values
    paired: bool  # whether the requests of an id are the same in both
    free: Free

    @property
    def measured(self) -> bool:
        return is_imported(self.folders[1])

    def content(self) -> dict[str, Any]:
        """As it stands in `compare.json`."""
        first, second = map(str, self.folders)
        about = {"changes": {path: list(values) for path, values in self.changes.items()}, "paired": self.paired}
        if self.measured:
            return {"simulated": first, "measured": second, **about, "free_running": self.free.content()}
        figures = {name: change(figure) for name, figure in self.free.figures.items()}
        counts = {"requests": self.free.num_requests, "requests_left_out": self.free.num_left_out}
        return {"first": first, "second": second, **about, **counts, "figures": figures}


def change(figure: Figure) -> dict[str, Any]:
    """From the first run to the second."""
    return {
        "first": figure.measured,
        "second": figure.simulated,
        "change_percent": figure.error_percent,
        "interval_percent": figure.interval_percent,
        "significant": is_significant(figure),
    }


def is_significant(figure: Figure) -> bool | None:
    """Whether no change is outside the interval; None where there is none."""
    if figure.interval_percent is None:
        return None
    low, high = figure.interval_percent
    return low > 0 or high < 0


def compare_pair(first: Path, second: Path, label: str = "") -> Pair:
    """Raises InputError, one line, where one of them is no run, or is not what its scenario simulates to."""
    if is_imported(first) and not is_imported(second):
        raise InputError(f"{first}: was measured; the first folder is the simulated one, the second the measured one")
    views = seen_run(first), seen_run(second)
    sides = [Side(view.requests, view.gaps) for view in views]
    paired = same_requests(views[0].requests, views[1].requests)
    over, under = sides if is_imported(second) else sides[::-1]
    scenarios = [view.scenario for view in views if view.scenario is not None]
    return Pair(
        label=label,
        folders=(first, second),
        views=views,
        changes=differences(scenarios[0], scenarios[1]) if len(scenarios) == 2 else {},
        paired=paired,
        free=free(over, under, paired=paired, **_warmup(scenarios)),
    )


def _warmup(scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """What does not count, of the first that says so."""
    measure = scenarios[0].measure if scenarios else Measure()
    return {"warmup_requests": measure.warmup_requests, "warmup": measure.warmup}


def same_requests(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Whether the same were asked, by the lengths of all that finished in both runs."""
    columns = ["request_id", "prompt_tokens", "output_tokens"]
    done = [table.loc[table["status"] == "finished", columns].set_index("request_id") for table in (ours, theirs)]
    both = done[0].index.intersection(done[1].index)
    if not len(both) or len(ours) != len(theirs):
        return False
    return bool(np.array_equal(done[0].loc[both].to_numpy(float), done[1].loc[both].to_numpy(float)))
