"""The fullest second and the fullest instant of a run."""

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def peak_tokens(done: pd.DataFrame, decode_ends: Floats, start: float, end: float) -> float:
    """Output tokens in the fullest second, in whole seconds from the start of the window, as vLLM counts them.

    `decode_ends` has rows of (seconds, tokens decoded); first tokens come from prefills, so from the requests.
    """
    times = np.concatenate([decode_ends[:, 0], done["first_token"].to_numpy(float)])
    tokens = np.concatenate([decode_ends[:, 1], np.ones(len(done))])
    tokens[(times < start) | (times > end)] = 0
    if not tokens.any():
        return math.nan
    seconds = np.clip(times - start, 0, end - start).astype(np.int64)
    if end - start > 10 * len(seconds):  # mostly idle: a count for every second would be long
        seconds = np.unique(seconds, return_inverse=True)[1]
    return int(np.bincount(seconds, tokens).max())


def peak_concurrency(requests: pd.DataFrame) -> int:
    """The most requests in flight at one instant; one that ends as another arrives makes room for it."""
    served = requests[requests["finish"].notna() & (requests["status"] != "rejected")]
    stuck = requests[requests["status"].isin(["stalled", "unfinished"])]
    ends, arrivals = served["finish"], pd.concat([served["arrival"], stuck["arrival"]])
    times = np.concatenate([ends, arrivals])
    steps = np.repeat([-1, 1], [len(ends), len(arrivals)])
    return int(steps[np.lexsort((steps, times))].cumsum().max(initial=0))
