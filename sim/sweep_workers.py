"""Where a sweep's points are simulated: processes of this machine, or a Dask cluster, both through joblib."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sim.processes import in_processes
from sim.sweep_points import Point
from sim.sweep_row import Row, simulated
from workloads.errors import InputError

PATIENCE = 10  # seconds that a cluster has to answer


class Task(NamedTuple):
    """One point, as it is sent to wherever it is simulated."""

    number: int  # among those that are sent together
    id: str
    scenario: str
    folder: Path | None  # for its tables, if they are wanted


Done = tuple[int, Row]
Map = Callable[[Callable[[Task], Done], Sequence[Task]], Iterable[Done]]


class Workers:
    """Simulate points side by side; hand back each as soon as it is done, in any order."""

    def __init__(self, each: Map, words: str) -> None:
        self._each = each
        self.words = words  # how many of what

    def __call__(self, points: Sequence[Point], tables: Path | None) -> Iterator[tuple[Point, Row]]:
        """`tables`, if any, is the folder in which each gets one of its own."""
        tasks = [Task(n, p.id, p.scenario, None if tables is None else tables / p.id) for n, p in enumerate(points)]
        for number, row in self._each(_simulate, tasks) if tasks else ():
            yield points[number], row


def _simulate(task: Task) -> Done:
    return task.number, simulated(task.id, task.scenario, task.folder)


@contextmanager
def workers(jobs: int | None, dask: str | None) -> Iterator[Workers]:
    """Raises InputError where there is no such cluster, or a worker dies."""
    from joblib import cpu_count
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        if dask is not None:
            with _cluster(dask) as number:
                yield Workers(_on_cluster, f"{number} threads of {dask}")
        else:
            number = jobs or cpu_count()
            local: Map = partial(in_processes, jobs=number, expected=math.inf)
            yield Workers(local, f"{number} process{'es' * (number > 1)}")
    except TerminatedWorkerError as error:
        raise InputError(f"a worker died: {str(error).split('.')[0]}; the same command goes on where it was") from None


def _on_cluster(function: Callable[[Task], Done], tasks: Sequence[Task]) -> Iterable[Done]:
    from joblib import Parallel, delayed

    results: Iterable[Done] = Parallel(return_as="generator_unordered", batch_size=1)(map(delayed(function), tasks))
    return results


@contextmanager
def _cluster(address: str) -> Iterator[int]:
    """joblib's backend is a Dask cluster then; how many threads it has."""
    from distributed import Client
    from joblib import parallel_config

    try:
        client: Any = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]  # theirs
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--dask {address}: no scheduler answers: {error}") from None
    with client:
        number = sum(client.ncores().values())
        if not number:
            raise InputError(f"--dask {address}: the cluster has no workers")
        with parallel_config(backend="dask", client=client, n_jobs=-1):
            yield number
