"""Inter-token latencies of all requests, pooled, out of the log of decode steps."""

import numpy as np
from numpy.typing import NDArray

from sim.samples import WeightedSample

Ints = NDArray[np.int64]


def pooled_itl(segments: Ints, step_ends: Ints, *, with_ends: bool = True) -> WeightedSample:
    """Every gap between two successive tokens of one request, in nanoseconds.

    `segments` has rows of (time of the token that a prefill gave, the next decode step, number of steps, whether it
    continues the row before after a preemption); `step_ends` the end of every decode step. Two requests that decode
    in the same two steps share one gap, so gaps between steps are counted, not listed. `with_ends`, the sample can
    be cut at a time.
    """
    time, step, count, continues = segments.T
    decoding, resumed = count > 0, np.flatnonzero(continues)
    shared = max(0, len(step_ends) - 1)
    first = step[decoding]
    starts = np.concatenate([time[decoding], _last_tokens(time, step, count, step_ends, resumed - 1)])
    ends = np.concatenate([step_ends[first], time[resumed]])
    values, weights = np.empty(shared + len(ends), np.int64), np.ones(shared + len(ends), np.int32)
    np.subtract(step_ends[1:], step_ends[:-1], out=values[:shared])
    np.subtract(ends, starts, out=values[shared:])
    _count_both(weights[:shared], first, count[decoding])
    unshared = weights == 0  # idle times: nobody's gaps, and so long that they would spread the sample's range
    values[unshared] = np.min(values, initial=2**62, where=~unshared)
    return WeightedSample(values, weights, np.concatenate([step_ends[1:], ends]) if with_ends else None)


def _last_tokens(time: Ints, step: Ints, count: Ints, step_ends: Ints, rows: Ints) -> Ints:
    """When the last token of each of these segments came."""
    of_steps = np.append(step_ends, 0)[step[rows] + count[rows] - 1] if len(rows) else rows  # any, if there is no step
    return np.where(count[rows] > 0, of_steps, time[rows])


def _count_both(pairs: NDArray[np.int32], first: Ints, count: Ints) -> None:
    """Write for each pair of successive steps how many requests decoded in both."""
    pairs[:] = 0
    last = first + count - 1  # the pair that it begins is no longer the request's
    np.add.at(pairs, first[first < len(pairs)], 1)
    np.subtract.at(pairs, last[last < len(pairs)], 1)
    np.cumsum(pairs, dtype=np.int32, out=pairs)
