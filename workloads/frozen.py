"""The base of everything that a scenario's YAML decodes into, and the kinds of number that recur in it."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

CHUNK = 4096  # random numbers are drawn this many at a time: numpy's fixed cost is then noise, memory stays small
NANOSECONDS = 1_000_000_000
LATEST = 2**62  # nanoseconds, 146 years: later times would not fit an int64 once something is added to them
LEAST, MOST = 1e-9, 1e9  # of rates and seconds: a nanosecond to 31 years, so that products stay far from inf and 0


def _not_tiny(value: float) -> float:
    if 0 < value < LEAST:
        raise ValueError(f"{value:g} is too near to zero; the least is {LEAST:g}")
    return value


Positive = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False), AfterValidator(_not_tiny)]
NonNegative = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False), AfterValidator(_not_tiny)]
Weight = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]  # sums of many stay finite
Whole = Annotated[int, Field(ge=0, le=2**40)]  # of tokens and the like: exact as a float, and sums fit an int64
NumRequests = Annotated[int, Field(gt=0, le=1_000_000_000)]


class Frozen(BaseModel):
    """A value decoded from YAML: it never changes, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
