"""When each token of each request came, and the gaps between them, written out request by request."""

import numpy as np
from numpy.typing import NDArray

from sim.result import Run

Ints = NDArray[np.int64]


def gaps_by_request(run: Run) -> tuple[Ints, Ints]:
    """(request ids, gaps in ns) of finished requests: every gap of `run.itl`, each with its request."""
    ids, gaps = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for request, times in _token_times(run):
        gaps.append(np.diff(times))
        ids.append(np.full(len(times) - 1, request))
    return np.concatenate(ids), np.concatenate(gaps)


def _token_times(run: Run) -> list[tuple[int, Ints]]:
    """A request's segments are neighbours: a token that prefill gave, and a slice of the decode steps' ends."""
    owners, segments, ends = run.token_segments()
    starts = np.flatnonzero(segments[:, 3] == 0)
    told = []
    for request, rows in zip(owners.tolist(), np.split(segments, starts)[1:], strict=True):
        parts = [np.concatenate([[time], ends[step : step + count]]) for time, step, count, _ in rows.tolist()]
        told.append((request, np.concatenate(parts)))
    return told
