"""Runs scenarios once for each of their replications, each with the next seed, and takes those of each together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sim.ensemble import Ensemble, Member
from sim.ensemble_output import member_folder, write_ensemble
from sim.output import write_run
from sim.processes import in_processes
from sim.progress import ProgressBar
from sim.resolve import Resolved
from sim.result import Run
from sim.run import Progress, simulate_resolved


class Group(NamedTuple):
    """A scenario with several runs, the first of which is done; where their files go, if they go anywhere."""

    resolved: Resolved
    first: Run
    label: str = ""
    folder: Path | None = None


class Task(NamedTuple):
    """One run to be, of the group of this number."""

    resolved: Resolved
    group: int
    label: str
    folder: Path | None


def single(resolved: Resolved, number: int = 0) -> Resolved:
    """One replication as a scenario of its own."""
    seed = resolved.scenario.seed + number
    return resolved._replace(scenario=resolved.scenario.model_copy(update={"seed": seed, "replications": 1}))


def replicated(resolved: Resolved, *, progress: Progress | None = None, jobs: int | None = None) -> Run:
    """The first run, whose summary is that of all; its tables are its own."""
    start = time.perf_counter()
    run = simulate_resolved(single(resolved), progress=progress)
    if not run.partial:
        complete([Group(resolved, run)], jobs, each=time.perf_counter() - start)
    return run


def complete(groups: Sequence[Group], jobs: int | None, *, each: float) -> None:
    """The other runs of all groups, each of which is expected to take `each` seconds; the first ones stand for them.

    After an interrupt, for as many as were done.
    """
    tasks = [task for number in range(len(groups)) for task in _others(number, groups[number])]
    done = [[Member.of(group.first)] for group in groups]
    with ProgressBar("replications", len(tasks)) as progress:
        try:
            for count, (number, member) in enumerate(
                in_processes(_carry_out, tasks, jobs, expected=each * len(tasks)), start=1
            ):
                if member.verdict == "interrupted":
                    break
                done[number].append(member)
                progress(count)
        except KeyboardInterrupt:
            pass
    for group, members in zip(groups, done, strict=True):
        scenario = group.resolved.scenario
        group.first.stand_for(Ensemble(members, scenario.replications))
        if group.folder is not None:
            write_ensemble(group.first, scenario, group.label, group.folder)


def _others(number: int, group: Group) -> list[Task]:
    later = [single(group.resolved, k) for k in range(1, group.resolved.scenario.replications)]
    folders = [group.folder and member_folder(group.folder, one.scenario.seed) for one in later]
    return [Task(one, number, group.label, folder) for one, folder in zip(later, folders, strict=True)]


def _carry_out(task: Task) -> tuple[int, Member]:
    """The group, and what is kept of the run."""
    run = simulate_resolved(task.resolved)
    if task.folder is not None and not run.partial:
        write_run(run, task.label, task.folder)
    return task.group, Member.of(run)
