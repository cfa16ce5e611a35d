"""Bins of consecutive iterations, so that half a million of them draw like a few hundred."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_BINS = 600


@dataclass(frozen=True)
class Bins:
    """Iterations in equal groups, with idle time between them as bins of their own."""

    edges: Floats  # seconds, one more than there are bins
    mean: dict[str, Floats]  # over the iterations of each bin
    peak: dict[str, Floats]
    idle: NDArray[np.bool_]
    group: int  # iterations in a bin; 1: nothing is averaged


def binned(iterations: pd.DataFrame, columns: dict[str, Floats]) -> Bins:
    """`columns` over time, one value per iteration; idle bins are 0. At least one iteration."""
    start, end = (iterations[name].to_numpy(float) for name in ("start", "end"))
    group = -(-len(start) // MAX_BINS)
    after_idle = 1 + np.flatnonzero(start[1:] - end[:-1] > (end[-1] - start[0]) / MAX_BINS)
    runs = zip(np.append(0, after_idle), np.append(after_idle, len(start)), strict=True)
    heads = np.concatenate([np.arange(first, last, group) for first, last in runs])
    sizes = np.diff(np.append(heads, len(start)))
    gaps = np.flatnonzero(np.isin(heads, after_idle))
    edges = np.append(np.insert(start[heads], gaps, end[heads[gaps] - 1]), end[-1])
    means = {name: np.insert(np.add.reduceat(values, heads) / sizes, gaps, 0.0) for name, values in columns.items()}
    peaks = {name: np.insert(np.maximum.reduceat(values, heads), gaps, 0.0) for name, values in columns.items()}
    return Bins(edges, means, peaks, np.insert(np.zeros(len(heads), bool), gaps, True), group)
