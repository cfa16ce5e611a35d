"""The latencies of a run as samples, and as quantiles at fixed shares, at which several runs can be laid together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.plotted import PlottedRun
from sim.samples import WeightedSample

Floats = NDArray[np.float64]

LATENCIES = ("ttft", "itl", "tpot", "e2el")
TAIL = 0.2  # the tail is the slowest fifth
RAREST = 1e-4  # shares below are not drawn
# shares at which a long curve is drawn: evenly, so that steep parts keep their shape, and closer towards the tail
SHARES = np.concatenate([np.linspace(0, 1 - TAIL, 300), 1 - np.geomspace(TAIL, RAREST / 10, 300), [1.0]])


class Quantiles(NamedTuple):
    """Of a sample of this size: the least value (ms) at or below which each of SHARES lies."""

    size: int
    values: Floats


def latencies(run: PlottedRun, name: str) -> WeightedSample:
    """The finished requests' latencies; for ITL, all gaps."""
    if name == "itl":
        return run.itl_sample
    seconds = run.requests.loc[run.requests["status"] == "finished", name].dropna().to_numpy(float)
    values = np.rint(seconds * 1e9).astype(np.int64)
    return WeightedSample(values, np.ones_like(values))


def all_quantiles(run: PlottedRun) -> Mapping[str, Quantiles]:
    """Of every latency that the run has."""
    samples = {name: latencies(run, name) for name in LATENCIES}
    return {name: _quantiles(sample) for name, sample in samples.items() if sample.size}


def _quantiles(sample: WeightedSample) -> Quantiles:
    values, shares = sample.cdf()
    return Quantiles(sample.size, values[np.searchsorted(shares, SHARES).clip(0, len(values) - 1)] * 1e3)


def mean_ttft_parts(run: PlottedRun, names: list[str]) -> Floats | None:
    """Milliseconds of each part of the TTFT, over the requests that got a first token; None if there are none."""
    answered = run.requests[run.requests["first_token"].notna()]
    return None if answered.empty else answered[names].mean().to_numpy(float) * 1e3
