"""The base of everything that a scenario's YAML decodes into, and the kinds of number that recur in it."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

CHUNK = 4096  # random numbers are drawn this many at a time: numpy's fixed cost is then noise, memory stays small
NANOSECONDS = 1_000_000_000


class Frozen(BaseModel):
    """A value decoded from YAML: it never changes, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
