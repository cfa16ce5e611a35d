"""Statistics of latencies with intervals: whole requests are drawn again, since one request's gaps hang together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PERCENTILES = (50, 90, 95, 99)
STATISTICS = ("mean", *(f"p{q}" for q in PERCENTILES))
RESAMPLES = 400
INTERVAL = (2.5, 97.5)
AT_ONCE = 2**22  # requests drawn at a time, so that many of them need no memory for all resamples
BLOCK = 256  # values looked at together, at least


class Sample:
    """Values, each with the request that it is of, of `num_requests` numbered from 0."""

    def __init__(self, values: Floats, owners: Ints, num_requests: int) -> None:
        order = np.argsort(values, kind="stable")
        self.values, self.owners = values[order], owners[order]
        self.num_requests = num_requests
        self._block = max(BLOCK, round(len(values) ** 0.5))

    def statistics(self, drawn: Ints) -> Floats:
        """A row for each row of `drawn`: mean and percentiles with every request counted as often as it was drawn.

        Percentiles are linear between order statistics, as numpy has them. NaN where nothing was drawn.
        """
        counts = np.bincount(self.owners, minlength=self.num_requests)
        sums = np.bincount(self.owners, weights=self.values, minlength=self.num_requests)
        totals = drawn @ counts
        means = np.divide(drawn @ sums, totals, out=np.full(len(drawn), np.nan), where=totals > 0)
        with np.errstate(invalid="ignore"):  # some BLAS look at what lies beside a small matrix
            drawn_in_blocks = drawn.astype(np.float32) @ self._in_blocks
        ends = np.cumsum(drawn_in_blocks, axis=1, dtype=np.float64)
        rows = zip(drawn, ends, totals.tolist(), strict=True)
        return np.column_stack([means, np.array([self._percentiles(*row) for row in rows])])

    @cached_property
    def _in_blocks(self) -> NDArray[np.float32]:
        """How many values each request has in each block of successive values: small whole numbers, exact in here."""
        blocks = -(-len(self.values) // self._block)
        counted = np.zeros((self.num_requests, max(blocks, 1)), np.float32)
        np.add.at(counted, (self.owners, np.arange(len(self.owners)) // self._block), 1)
        return counted

    def _percentiles(self, drawn: Ints, ends: Floats, total: int) -> list[float]:
        return [self._percentile(drawn, ends, total, q) if total else np.nan for q in PERCENTILES]

    def _percentile(self, drawn: Ints, ends: Floats, total: int, q: int) -> float:
        position = (total - 1) * q / 100
        rank = int(position)
        low, high = (self._ranked(drawn, ends, at) for at in (rank, min(rank + 1, total - 1)))
        return low + (high - low) * (position - rank)

    def _ranked(self, drawn: Ints, ends: Floats, rank: int) -> float:
        """The value at that rank: in which block, and where in there."""
        block = int(np.searchsorted(ends, rank, side="right"))
        inside = slice(block * self._block, (block + 1) * self._block)
        before = ends[block - 1] if block else 0.0
        place = np.searchsorted(np.cumsum(drawn[self.owners[inside]]), rank - before, side="right")
        return float(self.values[inside][place])


def draws(num_requests: int, seed: int, most_requests: int = 1) -> Iterator[Ints]:
    """How often each request is drawn in each resample, a row each, some at a time; the same for the same seed.

    As many at a time as there would be of `most_requests`, so that draws from two runs go together.
    """
    rng = np.random.default_rng([seed, num_requests])
    some = max(1, AT_ONCE // max(num_requests, most_requests, 1))
    for first in range(0, RESAMPLES if num_requests else 0, some):
        shares = np.full(num_requests, 1 / num_requests)
        yield rng.multinomial(num_requests, shares, size=min(some, RESAMPLES - first)).astype(np.int64)


def interval(values: Floats) -> tuple[float, float] | None:
    """The middle 95 % of resampled figures; None where they are undefined."""
    sound = values[np.isfinite(values)]
    if not len(sound):
        return None
    low, high = np.percentile(sound, INTERVAL)
    return float(low), float(high)
