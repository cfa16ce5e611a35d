"""Looks for the greatest rate that is still good: doubles it, or halves it, then bisects what lies between."""

from __future__ import annotations

import math

DIGITS = 6  # of a rate, so that it reads well and means the same when it is typed


class Climb:
    """One search. `rate` is what to try next, until it is `done`; `good` then is the greatest rate found to be good."""

    def __init__(self, start: float, tolerance: float, most: int) -> None:
        """Good and bad end at most the factor 1 + `tolerance` apart, unless `most` tries are not enough for it."""
        self.rate = start
        self.good: float | None = None
        self.bad: float | None = None
        self.tries = 0
        self._tolerance = tolerance
        self._most = most

    def tell(self, good: bool) -> None:
        """How the rate that was tried turned out."""
        self.tries += 1
        if good:
            self.good = self.rate
        else:
            self.bad = self.rate
        self.rate = self._next()

    def _next(self) -> float:
        if self.good is None or self.bad is None:
            return self.rate * 2 if self.good else self.rate / 2
        return float(f"{math.sqrt(self.good * self.bad):.{DIGITS}g}")

    @property
    def close(self) -> bool:
        """Whether the greatest good rate is known as well as was asked for."""
        if self.good is None or self.bad is None:
            return False
        return self.bad <= self.good * (1 + self._tolerance)

    @property
    def done(self) -> bool:
        return self.close or self.tries >= self._most

    @property
    def left(self) -> int:
        """How many tries there will be, as far as one can tell."""
        if self.done:
            return 0
        apart = 2.0 if self.good is None or self.bad is None else self.bad / self.good
        bisections = math.ceil(math.log2(max(1.0, math.log(apart) / math.log1p(self._tolerance))))
        doublings = 0 if self.good is not None and self.bad is not None else max(1, 3 - self.tries)
        return min(self._most - self.tries, doublings + bisections)
