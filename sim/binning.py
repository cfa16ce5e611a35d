"""Bins of consecutive iterations, so that half a million of them draw like a few hundred."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_BINS = 700


@dataclass(frozen=True)
class Bins:
    """Iterations that start within the same short time, with idle time between them as bins of their own."""

    edges: Floats  # seconds, one more than there are bins
    mean: dict[str, Floats]  # over the time of each bin's iterations
    peak: dict[str, Floats]
    idle: NDArray[np.bool_]
    width: float | None  # seconds; None: nothing is averaged


def binned(iterations: pd.DataFrame, columns: dict[str, Floats]) -> Bins:
    """`columns` over time, one value per iteration; idle bins are 0. At least one iteration."""
    start, end = (iterations[name].to_numpy(float) for name in ("start", "end"))
    width = (end[-1] - start[0]) / MAX_BINS if len(start) > MAX_BINS else None
    after_idle = 1 + np.flatnonzero(start[1:] - end[:-1] > (width or 0.0))
    heads = np.union1d(_heads(start, width), after_idle)
    weights = np.maximum(end - start, 1e-9)
    weights /= np.repeat(np.add.reduceat(weights, heads), np.diff(np.append(heads, len(start))))
    gaps = np.searchsorted(heads, after_idle)
    edges = np.append(np.insert(start[heads], gaps, end[after_idle - 1]), end[-1])
    means = {name: np.add.reduceat(values * weights, heads) for name, values in columns.items()}
    peaks = {name: np.maximum.reduceat(values, heads) for name, values in columns.items()}
    means, peaks = ({name: np.insert(bins, gaps, 0.0) for name, bins in of.items()} for of in (means, peaks))
    return Bins(edges, means, peaks, np.insert(np.zeros(len(heads), bool), gaps, True), width)


def _heads(start: Floats, width: float | None) -> NDArray[np.intp]:
    """The first iteration of each bin; one longer than a bin has it to itself."""
    if not width:
        return np.arange(len(start))
    return np.append(0, 1 + np.flatnonzero(np.diff(np.floor((start - start[0]) / width))))
