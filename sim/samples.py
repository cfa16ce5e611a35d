"""A weighted sample of times: the statistics of millions of equal gaps without writing each of them out."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Values in nanoseconds, each counted `weights` times.

    `mean`, `std` and `percentile` are in nanoseconds too and agree with numpy on the written-out array.
    """

    values: Ints
    weights: Ints  # how often each value occurs, at least 0
    ends: Ints | None = None  # when each gap ended (ns), where a warm-up may have to be cut off

    def since(self, start: int) -> "WeightedSample":
        """The gaps that ended after `start` (ns)."""
        if self.ends is None:
            raise ValueError("a sample without ends cannot be cut at a time")
        late = self.ends > start
        return WeightedSample(self.values[late], self.weights[late], self.ends[late])

    def expand(self) -> Floats:
        """Every single value, in seconds."""
        return np.repeat(self.values, self.weights) / 1e9

    @cached_property
    def size(self) -> int:
        return int(self.weights.sum())

    def mean(self) -> float:
        return int(self.values @ self.weights) / self.size if self.size else math.nan

    def std(self) -> float:
        """Of the population, as numpy's default."""
        if not self.size:
            return math.nan
        return math.sqrt(float(np.square(self.values - self.mean()) @ self.weights) / self.size)

    def percentile(self, q: float) -> float:
        """Linear between order statistics, with the very arithmetic of `numpy.percentile`."""
        if not self.size:
            return math.nan
        position = (self.size - 1) * (q / 100)
        rank = math.floor(position)
        return _between(self._ranked(rank), self._ranked(min(rank + 1, self.size - 1)), position - rank)

    def cdf(self) -> tuple[Floats, Floats]:
        """The distinct steps of the distribution: values in seconds, and the share at or below each."""
        values, cumulative = self._ordered
        last = np.flatnonzero(np.append(np.diff(values) > 0, values.size > 0))
        return values[last] / 1e9, cumulative[last] / max(self.size, 1)

    def _ranked(self, rank: int) -> int:
        values, cumulative = self._ordered
        return int(values[np.searchsorted(cumulative, rank, side="right")])

    @cached_property
    def _ordered(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.values, kind="stable")
        return self.values[order], np.cumsum(self.weights[order])


def _between(low: int, high: int, share: float) -> float:
    """From the nearer end, as numpy does: the result then never leaves the interval by a rounding."""
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share
