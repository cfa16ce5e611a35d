"""Columns of whole numbers as a page carries them: as narrow as they fit, compressed, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

TYPES = ("int8", "int16", "int32", "float64")  # float64 has whole numbers up to 2**53: times of 285 years in us
MISSING = -1


class Packed(TypedDict):
    """What `column` in decode.js reads."""

    type: str
    delta: bool  # differences, to be summed
    data: str


def packed(values: NDArray[np.int64], *, delta: bool = False) -> Packed:
    """A column; `delta` is for times that rise, whose differences are small."""
    kept = np.diff(values, prepend=0) if delta else values
    low, high = (int(kept.min()), int(kept.max())) if len(kept) else (0, 0)
    kind = next(name for name in TYPES if name == "float64" or _fits(low, high, name))
    data = zlib.compress(kept.astype(np.dtype(kind).newbyteorder("<")).tobytes(), 9)
    return {"type": kind, "delta": delta, "data": base64.b64encode(data).decode()}


def _fits(low: int, high: int, kind: str) -> bool:
    about = np.iinfo(kind)
    return bool(about.min <= low and high <= about.max)


def micros(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole microseconds; MISSING where there is no time."""
    return np.where(np.isnan(seconds), MISSING, np.rint(np.nan_to_num(seconds) * 1e6)).astype(np.int64)
