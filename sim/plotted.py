"""What plots ask of a run, and how its headline calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pandas as pd

from policies.limits import Limits
from sim.samples import WeightedSample
from sim.slo import SLO

if TYPE_CHECKING:
    from sim.ensemble import Ensemble


class PlottedRun(Protocol):
    """What a plot asks of a run."""

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def requests(self) -> pd.DataFrame: ...
    @property
    def iterations(self) -> pd.DataFrame: ...
    @property
    def itl_sample(self) -> WeightedSample: ...
    @property
    def slo(self) -> SLO: ...
    @property
    def limits(self) -> Limits: ...


@runtime_checkable
class OneEngine(PlottedRun, Protocol):
    """One engine of a run of several."""

    engine: str


@runtime_checkable
class SeveralEngines(Protocol):
    """A run of several."""

    def views(self) -> Sequence[OneEngine]: ...


@runtime_checkable
class OfSeveral(PlottedRun, Protocol):
    """A run that may stand for several, which differ in their random draws."""

    @property
    def ensemble(self) -> Ensemble | None: ...


Runs = Sequence[tuple[str, PlottedRun]]


def ensemble_of(run: PlottedRun) -> Ensemble | None:
    """Those that it stands for, where it does."""
    return run.ensemble if isinstance(run, OfSeveral) else None


def named(what: str, runs: Runs) -> str:
    """A headline with the names of the scenarios, and whether that is simulated or measured."""
    names = ", ".join(dict.fromkeys(run.name for _, run in runs))
    origins = " and ".join(dict.fromkeys(run.origin for _, run in runs))
    return f"{what}: {names if len(names) <= 60 else names[:57] + '...'}, {origins}" if names else what


def of_variant(what: str, label: str, run: PlottedRun) -> str:
    """A headline with the name of the scenario and what tells this run from the others."""
    engine = f", {run.engine}" if isinstance(run, OneEngine) else ""
    return named(what, [(label, run)]) + ("" if run.name in label.split() else f", {label}") + engine + one_of(run)


def one_of(run: PlottedRun) -> str:
    """Which it is, of a run that stands for several and is drawn alone."""
    ensemble = ensemble_of(run)
    return "" if ensemble is None else f", {ensemble.first}"


def views(run: PlottedRun) -> Sequence[tuple[str, PlottedRun]]:
    """What is drawn over time: the run itself, or each of its engines by itself, with its name."""
    if not isinstance(run, SeveralEngines):
        return [("", run)]
    return [(f"-{view.engine}", view) for view in run.views()]
