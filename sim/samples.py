"""A weighted sample of times: the statistics of millions of equal gaps without writing each of them out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
BITS = 14
CHUNK = 2**16  # values looked at together: copies of so many stay in the processor's cache


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Values in nanoseconds, each counted `weights` times.

    `mean`, `std` and `percentile` are in nanoseconds too and agree with numpy on the written-out array.
    """

    values: Ints
    weights: NDArray[np.integer[Any]]  # how often each value occurs, at least 0
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
        return sum(int(v @ w) for v, w in self._parts()) / self.size if self.size else math.nan

    def std(self) -> float:
        """Of the population, as numpy's default."""
        if not self.size:
            return math.nan
        mean = self.mean()
        # not by @, for which BLAS would start threads, and with so many of them round in so many ways
        return math.sqrt(sum(float((np.square(v - mean) * w).sum()) for v, w in self._parts()) / self.size)

    def _parts(self) -> Iterator[tuple[Ints, NDArray[np.integer[Any]]]]:
        for at in range(0, len(self.values), CHUNK):
            yield self.values[at : at + CHUNK], self.weights[at : at + CHUNK]

    def percentile(self, q: float) -> float:
        """Linear between order statistics, with the very arithmetic of `numpy.percentile`."""
        if not self.size:
            return math.nan
        position = (self.size - 1) * (q / 100)
        rank = math.floor(position)
        return _between(*self._ranked(rank), position - rank)

    def cdf(self) -> tuple[Floats, Floats]:
        """The distinct steps of the distribution: values in seconds, and the share at or below each."""
        values, cumulative = self._ordered
        last = np.flatnonzero(np.append(np.diff(values) > 0, values.size > 0))
        return values[last] / 1e9, cumulative[last] / max(self.size, 1)

    def _ranked(self, rank: int) -> tuple[int, int]:
        """The value at that rank and the one after it (itself at the end), without sorting them all."""
        values, weights, buckets = self.values, self.weights, self._buckets
        while True:
            bucket = int(np.searchsorted(buckets.cumulative, rank, side="right"))
            inside = np.flatnonzero(buckets.bucket == bucket)
            values, weights = values[inside], weights[inside]
            rank -= int(buckets.cumulative[bucket - 1]) if bucket else 0
            if buckets.shift == 0:
                return int(values[0]), self._after(int(values[0]), rank + 1 < weights.sum())
            buckets = _Buckets(values, weights)

    def _after(self, value: int, again: bool) -> int:
        """What follows an occurrence of the value: another one, or the next greater."""
        if again:
            return value
        greatest = int(self.values.max())
        greater = (self.values > value) & (self.weights > 0)
        return int(np.min(self.values, initial=greatest, where=greater)) if greater.any() else value

    @cached_property
    def _buckets(self) -> "_Buckets":
        return _Buckets(self.values, self.weights)

    @cached_property
    def _ordered(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.values)
        return self.values[order], np.cumsum(self.weights[order])


def _between(low: int, high: int, share: float) -> float:
    """From the nearer end, as numpy does: the result then never leaves the interval by a rounding."""
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


class _Buckets:
    """Values by equal intervals, at most 2**14 of them, and how many lie in those up to each."""

    def __init__(self, values: Ints, weights: NDArray[np.integer[Any]]) -> None:
        lowest = int(values.min())
        self.shift = max(0, (int(values.max()) - lowest).bit_length() - BITS)
        self.bucket = np.empty(len(values), np.uint16)  # of each value
        counts = np.zeros(2**BITS, np.int64)
        for at in range(0, len(values), CHUNK):
            part = slice(at, at + CHUNK)
            bucket = (values[part] - lowest) >> self.shift
            self.bucket[part] = bucket
            counts += np.bincount(bucket, weights[part], minlength=len(counts)).astype(np.int64)
        self.cumulative = np.cumsum(counts)
