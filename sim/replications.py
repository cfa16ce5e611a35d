"""Runs scenarios with several seeds, and if asked for with draws of what the profile leaves uncertain, all together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sim.blur import check_spread
from sim.ensemble import Draws, Ensemble, Member, Replications
from sim.ensemble_output import member_folder, write_ensemble
from sim.output import write_run
from sim.processes import in_processes
from sim.progress import ProgressBar
from sim.resolve import Resolved
from sim.result import Run
from sim.run import Progress, simulate_resolved


class Several(NamedTuple):
    """A scenario to be run with so many seeds, perhaps with as many draws."""

    resolved: Resolved
    number: int
    uncertain: bool = False

    def single(self, index: int = 0) -> Resolved:
        """One of them as a scenario of its own. Raises InputError where there is nothing to draw from."""
        scenario = self.resolved.scenario
        update: dict[str, Any] = {"seed": scenario.seed + index, "replications": 1}
        if self.uncertain:
            check_spread(self.resolved.profile, scenario.profile)
            update["simulation"] = scenario.simulation.model_copy(update={"draw": index})
        return self.resolved._replace(scenario=scenario.model_copy(update=update))

    def ensemble(self, members: Sequence[Member]) -> Ensemble:
        return (Draws if self.uncertain else Replications)(members, self.number)


class Group(NamedTuple):
    """Several runs, the first of which is done; where their files go, if they go anywhere."""

    several: Several
    first: Run
    label: str = ""
    folder: Path | None = None


class Task(NamedTuple):
    """One run to be, of the group of this number."""

    resolved: Resolved
    group: int
    label: str
    folder: Path | None


def simulate_several(several: Several, *, progress: Progress | None = None, jobs: int | None = None) -> Run:
    """The first run, whose summary is that of all; its tables are its own."""
    start = time.perf_counter()
    run = simulate_resolved(several.single(), progress=progress)
    if not run.partial:
        complete([Group(several, run)], jobs, each=time.perf_counter() - start)
    return run


def complete(groups: Sequence[Group], jobs: int | None, *, each: float) -> None:
    """The other runs of all groups, each of which is expected to take `each` seconds; the first ones stand for them.

    After an interrupt, for as many as were done.
    """
    tasks = [task for number in range(len(groups)) for task in _others(number, groups[number])]
    done = [[Member.of(group.first)] for group in groups]
    with ProgressBar("further runs", len(tasks)) as progress, suppress(KeyboardInterrupt):
        _gather(tasks, done, progress, jobs, expected=each * len(tasks))
    for group, members in zip(groups, done, strict=True):
        group.first.stand_for(group.several.ensemble(members))
        if group.folder is not None:
            write_ensemble(group.first, group.several.resolved.scenario, group.label, group.folder)


def ensembles(several: Sequence[Several], jobs: int | None = None, told: Progress = lambda _: None) -> list[Ensemble]:
    """All runs of all of them, without files; `told` hears how many are done."""
    tasks = [Task(one.single(k), number, "", None) for number, one in enumerate(several) for k in range(one.number)]
    done: list[list[Member]] = [[] for _ in several]
    _gather(tasks, done, told, jobs)
    return [one.ensemble(members) for one, members in zip(several, done, strict=True)]


def _gather(
    tasks: Sequence[Task], done: Sequence[list[Member]], told: Progress, jobs: int | None, **expected: float
) -> None:
    """Put what is kept of each run to those of its group, as it is done. Raises KeyboardInterrupt."""
    for count, (number, member) in enumerate(in_processes(_carry_out, tasks, jobs, **expected), start=1):
        if member.verdict == "interrupted":
            raise KeyboardInterrupt
        done[number].append(member)
        told(count)


def _others(number: int, group: Group) -> list[Task]:
    later = [group.several.single(index) for index in range(1, group.several.number)]
    folders = [group.folder and member_folder(group.folder, one.scenario.seed) for one in later]
    return [Task(one, number, group.label, folder) for one, folder in zip(later, folders, strict=True)]


def _carry_out(task: Task) -> tuple[int, Member]:
    """The group, and what is kept of the run."""
    run = simulate_resolved(task.resolved)
    if task.folder is not None and not run.partial:
        write_run(run, task.label, task.folder)
    return task.group, Member.of(run)
