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


def quantile(degrees: int) -> float:
    """So many standard errors reach as far as CONFIDENCE, to either side."""
    from scipy.special import stdtrit  # half a second that a single run can do without

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
