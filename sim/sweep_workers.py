"""Where a sweep's points are simulated: processes of this machine, or a Dask cluster, both through joblib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.sweep_points import Point
from sim.sweep_row import Row, simulated
from workloads.errors import InputError

PATIENCE = 10  # seconds that a cluster has to answer
IDLE = 10  # seconds after which a process without work ends, as it should when its sweep was killed


class Workers:
    """Simulate points side by side; hand back each as soon as it is done, in any order."""

    def __init__(self, parallel: Callable[[Iterable[Any]], Iterable[Any]], words: str) -> None:
        self._parallel = parallel  # joblib's
        self.words = words  # how many of what

    def __call__(self, points: Sequence[Point], tables: Path | None) -> Iterator[tuple[Point, Row]]:
        """`tables`, if any, is the folder in which each gets one of its own."""
        from joblib import delayed

        tasks = (delayed(_done)(number, point.id, point.scenario, tables) for number, point in enumerate(points))
        for number, row in self._parallel(tasks):
            yield points[number], row


def _done(number: int, id: str, scenario: str, tables: Path | None) -> tuple[int, Row]:
    return number, simulated(id, scenario, None if tables is None else tables / id)


@contextmanager
def workers(jobs: int | None, dask: str | None) -> Iterator[Workers]:
    """Raises InputError where there is no such cluster, or a worker dies."""
    from joblib import Parallel, cpu_count, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        if dask is not None:
            with _cluster(dask) as number, Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1) as on:
                yield Workers(on, f"{number} threads of {dask}")
            return
        number = jobs or cpu_count()
        local = parallel_config(backend="loky", idle_worker_timeout=IDLE)
        with local, Parallel(n_jobs=number, return_as="generator_unordered", batch_size=1) as on:
            yield Workers(on, f"{number} process{'es' * (number > 1)}")
    except TerminatedWorkerError as error:
        raise InputError(f"a worker died: {str(error).split('.')[0]}; the same command goes on where it was") from None


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
        with parallel_config(backend="dask", client=client):
            yield number
