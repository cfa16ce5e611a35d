"""The same function for many arguments, in as many processes as there are cores; an interrupt ends them all."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

A = TypeVar("A")
R = TypeVar("R")

START = 5.0  # seconds; processes take about as long to start, with all that they import


def in_processes(
    function: Callable[[A], R], arguments: Sequence[A], jobs: int | None = None, *, expected: float = START
) -> Iterator[R]:
    """What the function gives, as each is done. What it raises ends the others.

    `jobs` processes, by default one a core, or none where all of it is `expected` (s) to take no longer than to start
    them. One job is done in this process.
    """
    if jobs == 1 or (jobs is None and expected < START):
        return map(function, arguments)
    from joblib import Parallel, cpu_count, delayed  # a third of a second that a single run can do without

    number = min(jobs or cpu_count(), max(len(arguments), 1))
    calls = Parallel(number, backend="loky", return_as="generator_unordered", initializer=_leave_interrupts_alone)
    results: Iterator[R] = calls(delayed(function)(argument) for argument in arguments)
    return results


def _leave_interrupts_alone(*_: Any) -> None:
    """Ctrl-C reaches every process of the terminal; only the one that was started by hand answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
