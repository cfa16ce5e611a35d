"""Where a sweep's points are simulated: processes of this machine, through joblib, or a Dask cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sim.processes import in_processes
from sim.sweep_points import Point
from sim.sweep_row import Row, simulated
from workloads.errors import InputError

PATIENCE = 10  # seconds that a cluster has to answer
GOES_ON = "goes on where it was"


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
            with _cluster(dask) as (client, number):
                yield Workers(partial(_on_cluster, client), f"{number} threads of {dask}")
        else:
            number = jobs or cpu_count()
            local: Map = partial(in_processes, jobs=number, expected=math.inf)
            yield Workers(local, f"{number} process{'es' * (number > 1)}")
    except TerminatedWorkerError as error:
        raise InputError(f"a worker died: {str(error).split('.')[0]}; the same command {GOES_ON}") from None


def _on_cluster(client: Any, function: Callable[[Task], Done], tasks: Sequence[Task]) -> Iterator[Done]:
    """Without joblib in between, whose bookkeeping costs the cluster's scheduler several milliseconds a point more."""
    from distributed import KilledWorker, as_completed

    futures = client.map(function, tasks, pure=False)
    try:
        for _, done in as_completed(futures, loop=client.loop, with_results=True):  # type: ignore[no-untyped-call]  # theirs
            yield done
    except KilledWorker as error:
        raise InputError(f"a worker died: {error.last_worker}; the same command {GOES_ON}") from None
    except CancelledError:
        raise InputError(f"the cluster is gone; the same command {GOES_ON}") from None
    finally:
        client.cancel(futures)


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Any, int]]:
    """Its client, and how many threads it has."""
    from distributed import Client

    try:
        client: Any = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]  # theirs
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--dask {address}: no scheduler answers: {error}") from None
    with client:
        number = sum(client.ncores().values())
        if not number:
            raise InputError(f"--dask {address}: the cluster has no workers")
        yield client, number
