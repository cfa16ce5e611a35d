"""Shapes of iterations: coarse ones to report by, fine ones within which times should be equal but for noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FINE = 4  # near-equal shapes: a quarter of an octave, 19 %, from one to the next in each coordinate
LEAST = 5  # times of near-equal shape that tell a spread; of fewer, the median is too near to each
MAD = 1.4826  # from the median absolute deviation to the standard deviation of a normal distribution


def coarse(shapes: Floats) -> NDArray[np.int64]:
    """The power of two at or below each coordinate, as an exponent; -1 below 1."""
    return np.where(shapes < 1, -1, np.floor(np.log2(np.maximum(shapes, 1)))).astype(np.int64)


def told(names: tuple[str, ...], exponents: tuple[int, ...]) -> str:
    """`decodes 8-15, context 256-511`."""
    return ", ".join(f"{name} {_span(exponent)}" for name, exponent in zip(names, exponents, strict=True))


def _span(exponent: int) -> str:
    if exponent < 1:
        return str(exponent + 1)
    return f"{1 << exponent:,}-{(2 << exponent) - 1:,}"


def spread(ratios: Floats, shapes: Floats) -> float | None:
    """The noise in percent: a robust coefficient of variation of the ratios within near-equal shapes.

    Each ratio is divided by the median of its shape, and of what is left of all shapes with at least five iterations
    the median absolute deviation from 1 is taken, as of a normal distribution. None if there is no such shape.
    """
    if not len(shapes):
        return None
    keys = np.rint(FINE * np.log2(1 + shapes))
    _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    alike = [part for part in np.split(ratios[order], np.cumsum(counts)[:-1]) if len(part) >= LEAST]
    sound = [part / median for part in alike if (median := np.median(part)) > 0]
    return float(100 * MAD * np.median(np.abs(np.concatenate(sound) - 1))) if sound else None
