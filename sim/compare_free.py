"""The free-running check: the latencies of a simulated run against those of the live one, request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.bootstrap import STATISTICS, Sample, draws, interval
from sim.client_view import Gaps

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
    gaps: Gaps | None


def free(simulated: Side, measured: Side, *, warmup_requests: int, warmup: float, paired: bool = True) -> Free:
    """Errors of the simulation in percent of the measured figure, and what they would be with other requests drawn.

    `paired`, the requests of an id are the same in both runs: those count that finished in both, and are drawn
    together. Else each run's are its own.
    """
    counted = [_after_warmup(side.requests, warmup_requests, warmup) for side in (simulated, measured)]
    both = set.intersection(*counted)
    ids = [sorted(both if paired else those) for those in counted]
    samples = [_samples(side, those) for side, those in zip((simulated, measured), ids, strict=True)]
    figures: dict[str, Figure] = {}
    for name in samples[0].keys() & samples[1].keys():
        sides = _Sides(samples[0][name].statistics, samples[1][name].statistics, len(ids[0]), len(ids[1]), paired)
        figures |= _figures([f"{statistic}_{name}_ms" for statistic in STATISTICS], sides)
    rates = _Sides(_throughput(simulated, ids[0]), _throughput(measured, ids[1]), len(ids[0]), len(ids[1]), paired)
    # no interval: the run lasts as long as it does, whichever of its requests are drawn
    figures |= {THROUGHPUT: _figures([THROUGHPUT], rates)[THROUGHPUT]._replace(interval_percent=None)}
    names = [*(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in STATISTICS), THROUGHPUT]
    sent = len(set(simulated.requests["request_id"]) | set(measured.requests["request_id"]))
    left_out = sent - len(both) if paired else len(simulated.requests) + len(measured.requests) - sum(map(len, ids))
    return Free(len(ids[0]), left_out, {name: figures[name] for name in names if name in figures})


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
    if side.gaps is not None:
        owners, gaps = side.gaps
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


class _Sides(NamedTuple):
    """Some figures of both runs, as functions of how often each of their requests is drawn."""

    ours: Figures
    theirs: Figures
    num_ours: int
    num_theirs: int
    paired: bool

    def drawn(self) -> Iterator[tuple[Ints, Ints]]:
        """How often, of both; the same way where they are the same requests."""
        some = draws(self.num_ours, SEED, max(self.num_ours, self.num_theirs))
        if self.paired:
            return ((rows, rows) for rows in some)
        return zip(some, draws(self.num_theirs, SEED + 1, max(self.num_ours, self.num_theirs)), strict=False)


def _figures(names: list[str], sides: _Sides) -> dict[str, Figure]:
    simulated = sides.ours(np.ones((1, sides.num_ours), np.int64))
    measured = sides.theirs(np.ones((1, sides.num_theirs), np.int64))
    error = _errors(simulated, measured)[0]
    resampled = np.concatenate(
        [error[None], *(_errors(sides.ours(one), sides.theirs(other)) for one, other in sides.drawn())]
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
