"""The curve of a latency's distribution: of one run its steps, of several the mean of theirs within a band."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.ensemble import BAND, Ensemble
from sim.latencies import SHARES, latencies
from sim.plot_style import number
from sim.plotted import PlottedRun, ensemble_of
from sim.samples import WeightedSample

Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """Shares at or below `x` (ms); `percentile` gives ms, `words` a percentile as it is written."""

    x: Floats
    shares: Floats
    size: int  # of the sample
    percentile: Callable[[float], float]
    words: Callable[[int], str]
    band: tuple[Floats, Floats] | None = None  # within which 95 % of the runs lie, at each share


def curve_of(run: PlottedRun, name: str) -> Curve | None:
    """None where there is nothing to draw."""
    ensemble = ensemble_of(run)
    if ensemble is not None:
        return _of_several(ensemble, name)
    sample = latencies(run, name)
    if not sample.size:
        return None
    x, shares = steps(sample)
    return Curve(
        x, shares, sample.size, lambda q: sample.percentile(q) / 1e6, lambda q: number(sample.percentile(q) / 1e6)
    )


def steps(sample: WeightedSample) -> tuple[Floats, Floats]:
    """Steps of a CDF that is not empty, from 0 up, in milliseconds; of a long one, as many as show."""
    values, shares = sample.cdf()
    if len(values) > len(SHARES):
        kept = np.unique(np.searchsorted(shares, SHARES).clip(0, len(values) - 1))
        values, shares = values[kept], shares[kept]
    return np.append(values[0], values) * 1e3, np.append(0.0, shares)


def _of_several(ensemble: Ensemble, name: str) -> Curve | None:
    known = [member.quantiles[name] for member in ensemble.members if name in member.quantiles]
    if not known:
        return None
    values = np.array([quantiles.values for quantiles in known])
    mean, (low, high) = values.mean(axis=0), np.percentile(values, BAND, axis=0)
    size = min(quantiles.size for quantiles in known)
    words = lambda q: ensemble.written(f"p{q}_{name}_ms", number)  # noqa: E731
    return Curve(mean, SHARES, size, lambda q: float(np.interp(q / 100, SHARES, mean)), words, (low, high))
