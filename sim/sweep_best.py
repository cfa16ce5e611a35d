"""Which settings of a sweep are the best, and how sure that is, by the spread over replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.student import half_width
from sim.sweep_points import Setting

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with half the width of its interval; None where one replication tells no spread."""

    mean: float
    half: float | None


@dataclass(frozen=True)
class Ranked:
    """One setting with its figure: of all replications, and by how much it is off the best one's."""

    setting: Setting
    figure: Estimate
    behind: Estimate | None  # paired by replication, since they have their seeds in common; None for the best


def estimate(values: Floats) -> Estimate:
    """The mean and Student's interval around it, at 95 %."""
    return Estimate(float(values.mean()), half_width(values.tolist()))


def ranked(settings: Sequence[tuple[Setting, Mapping[int, float]]], *, least: bool = False) -> list[Ranked]:
    """Best first; `settings` have a value for each replication, all of them for the same ones."""
    found = [(setting, np.array(list(values.values()))) for setting, values in settings]
    found.sort(key=lambda pair: pair[1].mean() if least else -pair[1].mean())
    best = found[0][1] if found else np.zeros(0)
    return [
        Ranked(setting, estimate(values), estimate(values - best) if rank else None)
        for rank, (setting, values) in enumerate(found)
    ]
