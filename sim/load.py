"""Says in one line that a load was more than the server could carry."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_REQUESTS = 20  # fewer say nothing about a trend
MARGIN = 0.05  # served must fall short of offered, and the queue grow, by this share of what is offered
CHANCE = 2.0  # standard deviations by which a queue may grow without meaning it


def load_verdict(requests: pd.DataFrame) -> str | None:
    """`offered 12.0 requests/s, served 9.1: the queue grows` of a load past capacity, else None.

    Past capacity, ever more requests wait for their first token while requests arrive. That tells an overload from
    the tail of a short run, where the server is merely still busy when the last request has come, and from a closed
    loop. A queue also wanders, so the growth must be more than the random walk of that many requests makes.
    """
    asked = requests[["arrival", "first_token", "finish", "status"]]
    sent = asked[asked["status"] != "rejected"].sort_values("arrival", kind="stable")
    arrival = sent["arrival"].to_numpy(float)
    if len(sent) < MIN_REQUESTS or arrival[-1] == arrival[0]:
        return None
    offered = (len(sent) - 1) / (arrival[-1] - arrival[0])
    served = _departure_rate(sent)
    if served > (1 - MARGIN) * offered or not _grows(arrival, _queue(sent, arrival)):
        return None
    return f"offered {_rate(offered)} requests/s, served {_rate(served)}: the queue grows"


def _queue(sent: pd.DataFrame, arrival: Floats) -> Floats:
    """How many wait for their first token when each request arrives; who leaves without one waits no longer."""
    answered = np.sort(sent["first_token"].fillna(sent["finish"]).dropna().to_numpy(float))
    return np.arange(1.0, len(arrival) + 1) - np.searchsorted(answered, arrival, side="right")


def _grows(arrival: Floats, queue: Floats) -> bool:
    """From the first quarter of the requests to the last, by the medians."""
    quarter = len(queue) // 4
    growth = float(np.median(queue[-quarter:]) - np.median(queue[:quarter]))
    passed = len(queue) - quarter
    gaps = np.diff(arrival)
    variability = np.square(gaps.std() / gaps.mean()) + 0.5  # of arrivals, as measured, and of answers, assumed
    return growth > max(MARGIN * passed, CHANCE * float(np.sqrt(passed * variability)))


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
