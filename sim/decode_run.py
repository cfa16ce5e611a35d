"""A run of decode iterations as the arithmetic sequence that it is: added up and cut without listing it."""

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

SHIFT = 26  # decode iterations are priced in whole quanta of 2**-26 ns, so that one and many come out equal to the bit
QUANTUM = 1 << SHIFT  # so many make a nanosecond
HALF = QUANTUM // 2  # rounds to the nearest nanosecond, halves up
MOST = 2**62  # quanta by which iterations of a run may differ: unrolled, they must fit an int64


class DecodeRun(NamedTuple):
    """Iteration k = 0, 1, ... takes `first + k * slope >> SHIFT` ns: contexts grow, so each takes longer."""

    num_iterations: int
    first: int  # in quanta
    slope: int  # in quanta, not negative


_run = partial(tuple.__new__, DecodeRun)  # what a NamedTuple does for itself takes twice as long, and runs are many


def run_until(horizon: int, n: int, first: int, slope: int) -> tuple[DecodeRun, int]:
    """`n` iterations or fewer: the last is the first one that ends at `horizon` ns or later. With it, what it takes."""
    shortest = first >> SHIFT
    if shortest * n > horizon:
        n = max(1, -(-horizon // shortest))
    if slope * n > MOST:
        n = max(1, MOST // slope)
    total = summed(n, first, slope)
    if n > 1 and total - (first + slope * (n - 1) >> SHIFT) >= horizon:
        n = _first_past(horizon, n, first, slope)
        total = summed(n, first, slope)
    return _run((n, first, slope)), total


def _first_past(horizon: int, n: int, first: int, slope: int) -> int:
    return 1 + bisect_left(range(1, n), horizon, key=lambda k: summed(k, first, slope))


def summed(n: int, first: int, slope: int) -> int:
    """The sum of `first + k * slope >> SHIFT` for k = 0 ... n - 1, in about log(n) rounds.

    Lattice points under a line: what whole units contribute is taken off, then the axes change places, as in Euclid's
    algorithm.
    """
    total = n * (n - 1) // 2 * (slope >> SHIFT) + n * (first >> SHIFT)
    unit, slope, first = QUANTUM, slope % QUANTUM, first % QUANTUM
    while (top := n * slope + first) >= unit:
        n, first = top // unit, top % unit
        unit, slope = slope, unit
        total += n * (n - 1) // 2 * (slope // unit) + n * (first // unit)
        slope, first = slope % unit, first % unit
    return total
