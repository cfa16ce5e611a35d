"""Says in one line that a load was more than the server could carry."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_REQUESTS = 20  # fewer say nothing about a trend
MARGIN = 0.05  # served must fall this much short of offered, and waiting grow by as much of the time that passes
CHANCE = 2.0  # standard deviations by which a queue may grow without meaning it


def load_verdict(requests: pd.DataFrame) -> str | None:
    """ "offered 12.0 requests/s, served 9.1: the queue grows", or None.

    Past capacity, each request waits longer for its first token than the one before. That tells an overload from
    the tail of a short run, where the server is merely still busy when the last request has arrived, and from a
    closed loop. A queue also wanders, so the growth must be more than a random walk of that many requests makes.
    """
    sent = requests[requests["status"] != "rejected"].sort_values("arrival", kind="stable")
    arrival = sent["arrival"].to_numpy(float)
    if len(sent) < MIN_REQUESTS or arrival[-1] == arrival[0]:
        return None
    offered = (len(sent) - 1) / (arrival[-1] - arrival[0])
    served = _departure_rate(sent)
    if served > (1 - MARGIN) * offered or not _waits_grow(arrival, _waits(sent), offered):
        return None
    return f"offered {_rate(offered)} requests/s, served {_rate(served)}: the queue grows"


def _waits(sent: pd.DataFrame) -> Floats:
    """Seconds to the first token; who never got one has waited till it left, or till the end of the run."""
    end = sent[["arrival", "first_token", "finish"]].max().max()
    answered = sent["first_token"].fillna(sent["finish"]).fillna(end)
    return (answered - sent["arrival"]).to_numpy(float)


def _waits_grow(arrival: Floats, waits: Floats, offered: float) -> bool:
    """From the first quarter of the requests to the last, by the medians."""
    quarter = len(waits) // 4
    growth = float(np.median(waits[-quarter:]) - np.median(waits[:quarter]))
    passed = float(np.median(arrival[-quarter:]) - np.median(arrival[:quarter]))
    gaps = np.diff(arrival)
    variability = np.square(gaps.std() / gaps.mean()) + 0.5  # of arrivals, as measured, and of answers, assumed
    chance = CHANCE * float(np.sqrt(passed * offered * variability)) / offered
    return growth > max(MARGIN * passed, chance)


def _departure_rate(sent: pd.DataFrame) -> float:
    """Finished requests per second, without the first and the last tenth: they fill and drain the server."""
    finish = np.sort(sent.loc[sent["status"] == "finished", "finish"].to_numpy(float))
    trim = len(finish) // 10
    middle = finish[trim : len(finish) - trim]
    if len(middle) < 2:
        return 0.0
    return float((len(middle) - 1) / max(middle[-1] - middle[0], 1e-9))


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
