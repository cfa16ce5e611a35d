"""The free-running check: the latencies of a simulated run against those of the live one, request by request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.bootstrap import STATISTICS, Sample, draws, interval
from sim.result import Run
from sim.token_times import gaps_by_request

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Figures = Callable[[Ints], Floats]

LATENCIES = ("ttft", "itl", "tpot", "e2el")
THROUGHPUT = "output_throughput"
SEED = 0


class Figure(NamedTuple):
    """One figure of both runs: milliseconds, or tokens per second; None where it is undefined."""

    simulated: float | None
    measured: float | None
    error: float | None  # simulated less measured
    error_percent: float | None
    interval_percent: tuple[float, float] | None  # 95 %, of the error


class Free(NamedTuple):
    """Of the requests that finished in both runs after the warm-up."""

    num_requests: int
    num_left_out: int  # that finished in one of both, or neither
    figures: dict[str, Figure]

    def content(self) -> dict[str, Any]:
        """As it stands in `compare.json`."""
        figures = {name: figure._asdict() for name, figure in self.figures.items()}
        return {"requests": self.num_requests, "requests_left_out": self.num_left_out, "figures": figures}


class Side(NamedTuple):
    """One of the two runs: its requests table and, where they are known, the gaps between its tokens."""

    requests: pd.DataFrame
    run: Run | None  # with the gaps; the live run's are its twin's


def free(simulated: Side, measured: Side, *, warmup_requests: int, warmup: float) -> Free:
    """Errors of the simulation in percent of the measured figure, and what they would be with other requests drawn."""
    counted = [_after_warmup(side.requests, warmup_requests, warmup) for side in (simulated, measured)]
    both = sorted(set.intersection(*counted))
    samples = [_samples(side, both) for side in (simulated, measured)]
    figures: dict[str, Figure] = {}
    for name in samples[0].keys() & samples[1].keys():
        ours, theirs = samples[0][name], samples[1][name]
        named = [f"{statistic}_{name}_ms" for statistic in STATISTICS]
        figures |= _figures(named, ours.statistics, theirs.statistics, len(both))
    rate, measured_rate = _throughput(simulated, both), _throughput(measured, both)
    # no interval: the run lasts as long as it does, whichever of its requests are drawn
    figures |= {
        THROUGHPUT: _figures([THROUGHPUT], rate, measured_rate, len(both))[THROUGHPUT]._replace(interval_percent=None)
    }
    names = [*(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in STATISTICS), THROUGHPUT]
    sent = len(set(simulated.requests["request_id"]) | set(measured.requests["request_id"]))
    return Free(len(both), sent - len(both), {name: figures[name] for name in names if name in figures})


def _after_warmup(requests: pd.DataFrame, count: int, seconds: float) -> set[int]:
    """Ids of those that finished, without the first to arrive and those that arrive in the first seconds."""
    start = requests["arrival"].min() + seconds
    late = requests.sort_values("arrival", kind="stable").iloc[count:]
    return set(late.loc[(late["status"] == "finished") & (late["arrival"] >= start), "request_id"].tolist())


def _samples(side: Side, ids: list[int]) -> dict[str, Sample]:
    """Milliseconds. Requests are numbered by their places in `ids`."""
    rows = side.requests.set_index("request_id").loc[ids]
    samples = {}
    for name in ("ttft", "tpot", "e2el"):
        values = rows[name].to_numpy(float) * 1e3
        defined = np.flatnonzero(~np.isnan(values))  # a one-token answer has no TPOT
        samples[name] = Sample(values[defined], defined, len(ids))
    if side.run is not None:
        owners, gaps = gaps_by_request(side.run)
        counted = np.isin(owners, ids)
        places = np.searchsorted(np.array(ids, np.int64), owners[counted])
        samples["itl"] = Sample(gaps[counted] / 1e6, places, len(ids))
    return samples


def _throughput(side: Side, ids: list[int]) -> Figures:
    rows = side.requests.set_index("request_id").loc[ids]
    tokens, arrival, finish = (rows[name].to_numpy() for name in ("output_tokens", "arrival", "finish"))

    def one(drawn: Ints) -> float:
        some = drawn > 0
        duration = finish[some].max() - arrival[some].min() if some.any() else 0.0
        return float(tokens @ drawn / duration) if duration > 0 else np.nan

    return lambda drawn: np.array([[one(row)] for row in drawn])


def _figures(names: list[str], ours: Figures, theirs: Figures, num_requests: int) -> dict[str, Figure]:
    once = np.ones((1, num_requests), np.int64)
    simulated, measured = ours(once), theirs(once)
    error = _errors(simulated, measured)[0]
    resampled = np.concatenate(
        [error[None], *(_errors(ours(some), theirs(some)) for some in draws(num_requests, SEED))]
    )
    return {
        name: Figure(
            _plain(simulated[0, index]),
            _plain(measured[0, index]),
            _plain(simulated[0, index] - measured[0, index]),
            _plain(error[index]),
            interval(resampled[1:, index]),
        )
        for index, name in enumerate(names)
    }


def _errors(simulated: Floats, measured: Floats) -> Floats:
    """In percent; of nothing, undefined."""
    return 100 * (simulated / np.where(measured > 0, measured, np.nan) - 1)


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
