"""Confidence intervals of means, after Student's t distribution (1908)."""

import math
from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95


def half_width(values: Sequence[float]) -> float | None:
    """How far the interval of the mean of independent values reaches to either side; of one value nobody knows."""
    size = len(values)
    if size < 2:
        return None
    return quantile(size - 1) * float(np.std(values, ddof=1)) / math.sqrt(size)


def welch_half_width(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Of the difference of two means of independent values, whatever their spreads (Welch, 1947)."""
    if min(len(ours), len(theirs)) < 2:
        return None
    own, other = (float(np.var(values, ddof=1)) / len(values) for values in (ours, theirs))
    if own + other == 0:
        return 0.0
    degrees = (own + other) ** 2 / (own**2 / (len(ours) - 1) + other**2 / (len(theirs) - 1))
    return quantile(degrees) * math.sqrt(own + other)


def quantile(degrees: float) -> float:
    """So many standard errors reach as far as CONFIDENCE, to either side."""
    from scipy.special import stdtrit  # half a second that a single run can do without

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
