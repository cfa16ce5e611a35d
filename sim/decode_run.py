"""A run of decode iterations as the arithmetic sequence that it is: added up and cut without listing it."""

from bisect import bisect_left
from functools import partial
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SHIFT = 26  # decode iterations are priced in whole quanta of 2**-26 ns, so that one and many come out equal to the bit
QUANTUM = 1 << SHIFT  # so many make a nanosecond
MOST = 2**61  # quanta, about: what the growth of a run's iterations may come to, so that it fits an int64 unrolled


class DecodeRun(NamedTuple):
    """The first k iterations take `rest + k * first + k * (k - 1) / 2 * slope >> SHIFT` ns: contexts grow by a token.

    So what an iteration leaves of a nanosecond is not rounded away: the next one goes on with it.
    """

    num_iterations: int
    first: int  # in quanta
    slope: int  # in quanta, not negative: by how much each takes longer than the one before
    rest: int = 0  # in quanta, less than a nanosecond


_run = partial(tuple.__new__, DecodeRun)  # what a NamedTuple does for itself takes twice as long, and runs are many


def run_until(horizon: int, n: int, first: int, slope: int, rest: int) -> tuple[DecodeRun, int]:
    """`n` iterations or fewer: the last is the first one that ends at `horizon` ns or later. With it, what it takes."""
    shortest = first >> SHIFT
    if shortest * n > horizon:
        n = max(1, -(-horizon // shortest))
    if n * n * slope > MOST:
        n = max(1, isqrt(MOST // slope))
    last = n - 1
    before = rest + last * first + last * (last - 1) // 2 * slope
    if last and before >> SHIFT >= horizon:
        n = 1 + bisect_left(range(1, n), horizon, key=lambda k: summed(k, first, slope, rest))
        return _run((n, first, slope, rest)), summed(n, first, slope, rest)
    return _run((n, first, slope, rest)), before + first + last * slope >> SHIFT


def summed(n: int, first: int, slope: int, rest: int) -> int:
    """What `n` iterations take, in ns."""
    return rest + n * first + n * (n - 1) // 2 * slope >> SHIFT


def ends(later: Ints, whole: Ints, part: Ints, slope: Ints, rest: Ints) -> Ints:
    """When iterations end, in ns from the start of their run, each with how many of its run come before it.

    Their run's `first` is so many whole nanoseconds and a part, which is in quanta.
    """
    passed = later + 1
    quanta = later * passed
    quanta >>= 1
    quanta *= slope
    quanta += passed * part
    quanta += rest
    quanta >>= SHIFT
    quanta += passed * whole
    return quanta


def unrolled(run: DecodeRun) -> Ints:
    """What each iteration of a run takes, in ns."""
    count, first, slope, rest = run
    whole, part, slopes, rests = np.array([[first >> SHIFT], [first % QUANTUM], [slope], [rest]])
    return np.diff(ends(np.arange(count), whole, part, slopes, rests), prepend=0)
