"""Inter-token latencies of all requests, pooled, out of the log of decode steps."""

import numpy as np
from numpy.typing import NDArray

from sim.samples import WeightedSample

Ints = NDArray[np.int64]


def pooled_itl(segments: Ints, step_ends: Ints) -> WeightedSample:
    """Every gap between two successive tokens of one request, in nanoseconds.

    `segments` has rows of (time of the token that a prefill gave, the next decode step, number of steps, whether it
    continues the row before after a preemption); `step_ends` the end of every decode step. Two requests that decode
    in the same two steps share one gap, so gaps between steps are counted, not listed.
    """
    time, step, count, continues = segments.T
    decoding = count > 0
    first = step[decoding]
    gaps = [np.diff(step_ends), step_ends[first] - time[decoding]]
    weights = [_both_steps(first, count[decoding], len(step_ends)), np.ones(len(first), np.int64)]
    ends = [step_ends[1:], step_ends[first]]
    resumed = np.flatnonzero(continues)
    if len(resumed):
        before = resumed - 1
        of_steps = np.append(step_ends, 0)[step[before] + count[before] - 1]  # any, where there was no step
        last = np.where(count[before] > 0, of_steps, time[before])
        gaps.append(time[resumed] - last)
        weights.append(np.ones(len(resumed), np.int64))
        ends.append(time[resumed])
    return WeightedSample(np.concatenate(gaps), np.concatenate(weights), np.concatenate(ends))


def _both_steps(first: Ints, count: Ints, num_steps: int) -> Ints:
    """For each pair of successive steps, how many requests decoded in both."""
    change = np.bincount(first + 1, minlength=num_steps + 1)[: num_steps + 1]
    change = change - np.bincount(first + count, minlength=num_steps + 1)[: num_steps + 1]
    together: Ints = np.cumsum(change)[1:num_steps]
    return together
