"""Runs read back for a report, with what their folders do not tell: tokens' times, and who shared an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from policies.limits import Limits
from sim.differences import requests_that_differ
from sim.live_output import LIVE, is_imported
from sim.members import Members
from sim.pool_result import PooledRun
from sim.pool_world import PooledWorld
from sim.recorded import RecordedLive, RecordedRun, read_json, read_live, read_run
from sim.result import Run
from sim.run import serve
from sim.samples import WeightedSample
from sim.scenario import Scenario
from sim.slo import SLO
from sim.twin import twin
from sim.variant_folders import runs_of
from sim.variants import numbered
from sim.world import Resolved, World
from sim.worlds import world_of
from workloads.errors import InputError

Ints = NDArray[np.int64]
Segments = tuple[Ints, Ints, Ints]  # see `Run.token_segments`

NOTHING = np.zeros(0, np.int64)
NO_SEGMENTS = (NOTHING, np.zeros((0, 4), np.int64), NOTHING)
NO_TOKENS = (
    "the times of tokens are not known: its scenario does not come to this run any more, or the run was cut short"
)


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run as its folder has it; without the times of tokens where running it again gives something else."""

    label: str
    recorded: RecordedRun
    summary: dict[str, Any]
    source: str
    limits: Limits
    engine_limits: Sequence[Limits]  # of each engine
    itl_sample: WeightedSample = field(default_factory=lambda: WeightedSample(NOTHING, NOTHING))
    segments: Segments = NO_SEGMENTS
    members: Sequence[Members] = ()  # of each engine
    engines: tuple[str, ...] = ()
    ensemble: None = None  # a page is made of single runs

    @property
    def name(self) -> str:
        return str(self.recorded.about["name"])

    @property
    def origin(self) -> str:
        return str(self.recorded.about.get("origin", "simulated"))

    @property
    def verdict(self) -> str:
        return self.recorded.verdict

    @property
    def decisions(self) -> int:
        return int(str(self.recorded.about.get("decisions", "0")), 16)

    @property
    def scenario(self) -> Scenario:
        return self.recorded.resolved.scenario

    @property
    def requests(self) -> pd.DataFrame:
        return self.recorded.requests

    @property
    def iterations(self) -> pd.DataFrame:
        return pd.DataFrame() if self.recorded.iterations is None else self.recorded.iterations

    @property
    def slo(self) -> SLO:
        return self.scenario.slo


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Every folder's run, or its variants'. Raises InputError where one holds none, or a file of one is not sound."""
    read = [reported(path) for folder in folders for path in _found(folder)]
    return _distinct(read)


def _found(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder")
    runs = runs_of(folder)
    if not runs:
        raise InputError(f"{folder}: holds no run: neither it nor a folder in it has a run.json")
    return runs


def reported(folder: Path) -> ReportedRun:
    """One run. A simulated one is simulated again, a live one's own times are fed back to its policy."""
    if is_imported(folder):
        raise InputError(
            f"{folder}: was imported; a report is of simulated and live runs, `tandem compare` takes this one"
        )
    recorded = read_live(folder, {}) if (folder / LIVE).exists() else read_run(folder)
    run, members = _again(recorded)
    label = str(recorded.about.get("label") or recorded.about["name"])
    known: dict[str, Any] = {}
    if requests_that_differ(run.requests, recorded.requests, "now", "then") is None:
        known = {"itl_sample": run.itl_sample, "segments": run.token_segments(), "members": members}
    summary = dict(read_json(folder / "summary.json", {}))
    limits = [view.limits for view in run.views()] if isinstance(run, PooledRun) else [run.limits]
    source = _source(recorded, run)
    return ReportedRun(label, recorded, summary, source, run.limits, limits, engines=run.engines, **known)


def _source(recorded: RecordedRun, again: Run) -> str:
    if not isinstance(recorded, RecordedLive):
        return again.source
    where = [
        part["name"]
        for part in map(recorded.live.get, ("device", "model"))
        if isinstance(part, dict) and "name" in part
    ]
    return f"{recorded.about['origin']} on {', '.join(map(str, where))}; clock: {recorded.clock}"


def _again(recorded: RecordedRun) -> tuple[Run, list[Members]]:
    if isinstance(recorded, RecordedLive):
        members: Members = {}
        return twin(recorded.resolved, recorded.plans, members).run, [members]
    return simulated_with_members(recorded.resolved)


def simulated_with_members(resolved: Resolved) -> tuple[Run, list[Members]]:
    """A simulation, and who shared each iteration of each engine."""
    world = world_of(resolved)
    told: list[Members] = []
    for recorder in _recorders(world):
        recorder.members = {}
        told.append(recorder.members)
    return serve(world, resolved.notes), told


def _recorders(world: World) -> list[Any]:
    if isinstance(world, PooledWorld):
        return [engine.recorder for engine in world.cluster.engines]
    return [world.recorder]


def _distinct(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """With labels that tell them apart: those that are alike get their scenario's name, their origin, or a number."""
    labels = [run.label for run in runs]
    for more in ([run.name for run in runs], [run.origin for run in runs]):
        alike = [label for label in labels if labels.count(label) > 1]
        if len({(label, word) for label, word in zip(labels, more, strict=True) if label in alike}) > len({*alike}):
            labels = [
                f"{label} ({word})" if label in alike else label for label, word in zip(labels, more, strict=True)
            ]
    return [replace(run, label=label) for run, label in zip(runs, numbered(labels), strict=True)]
