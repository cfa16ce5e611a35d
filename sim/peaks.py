"""The fullest second and the fullest instant of a run."""

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
SECOND = 1_000_000_000
CHUNK = 2**16  # decode steps looked at together


def peak_tokens(done: pd.DataFrame, step_ends: Ints, step_tokens: NDArray[Any], start: float, end: float) -> float:
    """Output tokens in the fullest second, in whole seconds from the start of the window, as vLLM counts them.

    `step_ends` (ns) and `step_tokens` tell when how many tokens were decoded; first tokens come from prefills, so from
    the requests. `start` and `end` are in seconds.
    """
    if not end > start:  # nobody was served
        return math.nan
    window = round(start * 1e9), round(end * 1e9)
    first = np.sort(np.rint(done["first_token"].to_numpy(float) * 1e9).astype(np.int64))
    pieces = [_per_second(first, np.ones(len(first), np.int64), window)]
    for at in range(0, len(step_ends), CHUNK):
        pieces.append(_per_second(step_ends[at : at + CHUNK], step_tokens[at : at + CHUNK], window))
    seconds, place = np.unique(np.concatenate([piece[0] for piece in pieces]), return_inverse=True)
    return int(np.bincount(place, np.concatenate([piece[1] for piece in pieces])).max()) if len(seconds) else math.nan


def _per_second(times: Ints, tokens: NDArray[Any], window: tuple[int, int]) -> tuple[Ints, NDArray[Any]]:
    """(seconds in which there were any, how many in each) of ascending times."""
    inside = slice(*np.searchsorted(times, [window[0], window[1] + 1]))
    seconds = (times[inside] - window[0]) // SECOND
    if not len(seconds):
        return seconds, tokens[:0]
    firsts = np.append(0, np.flatnonzero(seconds[1:] != seconds[:-1]) + 1)
    return seconds[firsts], np.add.reduceat(tokens[inside], firsts)


def peak_concurrency(requests: pd.DataFrame) -> int:
    """The most requests in flight at one instant; one that ends as another arrives makes room for it."""
    arrival, finish = (requests[name].to_numpy(float) for name in ("arrival", "finish"))
    status = requests["status"]
    served = ~np.isnan(finish) & (status != "rejected").to_numpy(bool)
    stuck = status.isin(["stalled", "unfinished"]).to_numpy(bool)
    ends, arrivals = finish[served], np.concatenate([arrival[served], arrival[stuck]])
    times = np.concatenate([ends, arrivals])
    steps = np.repeat([-1, 1], [len(ends), len(arrivals)])
    return int(steps[np.argsort(times, kind="stable")].cumsum().max(initial=0))
