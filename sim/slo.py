"""Service level objectives: the latencies a request must keep to count as good."""

from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SLO(BaseModel):
    """Upper bounds in seconds; one that is left out binds nobody."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttft: Seconds | None = None
    tpot: Seconds | None = None
    itl: Seconds | None = None  # of single gaps: drawn, and used to find stalls; no part of goodput, as in vLLM
    e2el: Seconds | None = None

    @property
    def per_request(self) -> dict[str, float]:
        """The bounds that goodput asks for, by column of the requests table."""
        bounds = {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.e2el}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def met(self, requests: pd.DataFrame) -> NDArray[np.bool_]:
        """Which requests finished within every bound. The TPOT of a one-token answer counts as 0."""
        good = (requests["status"] == "finished").to_numpy(bool)
        for name, bound in self.per_request.items():
            taken = requests[name].to_numpy(float)
            good = good & ((np.nan_to_num(taken) if name == "tpot" else taken) <= bound)
        return good
