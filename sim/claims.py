"""Published figures against simulated ones: by how much, how sure, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sim.ensemble import Ensemble
from sim.published import Published, PublishedFigure
from sim.student import quantile

ByPolicy = Mapping[str, Ensemble]


class Claim(NamedTuple):
    """A figure, or a change in percent, as published and as simulated."""

    figure: PublishedFigure
    simulated: Sequence[float]  # of each seed; nothing where the simulation has no such figure
    half_width: float | None  # 95 % of means of as many runs as were published lie so near to the mean

    @property
    def mean(self) -> float:
        return float(np.mean(self.simulated))

    @property
    def published(self) -> float | None:
        """The number, where there is one."""
        return self.figure.value if self.figure.value is not None else self.figure.change_percent

    @property
    def agrees(self) -> bool | None:
        """Whether the published number lies in the interval, or the simulated change is as small as the words say."""
        if not self.simulated:
            return None
        if self.figure.within_percent is not None:
            return abs(self.mean) <= self.figure.within_percent
        if self.published is None or self.half_width is None:
            return None
        return abs(self.mean - self.published) <= self.half_width


def claims(published: Published, by_policy: ByPolicy) -> list[Claim]:
    """Of every figure, policies compared seed by seed."""
    return [_claim(figure, by_policy, published.repetitions) for figure in published.figures]


def kinds(published: Published) -> list[str]:
    """The policies to simulate."""
    return list(dict.fromkeys(kind for f in published.figures for kind in (f.against, f.policy) if kind is not None))


def _claim(figure: PublishedFigure, by_policy: ByPolicy, repetitions: int) -> Claim:
    after = by_policy[figure.policy].figures.get(figure.metric, [])
    if figure.value is not None:
        return Claim(figure, after, _half_width(after, repetitions))
    before = by_policy[figure.against or figure.policy].figures.get(figure.against_metric or figure.metric, [])
    changes = [100 * (new / old - 1) for old, new in zip(before, after, strict=False) if old]
    return Claim(figure, changes, _half_width(changes, repetitions))


def _half_width(values: Sequence[float], repetitions: int) -> float | None:
    """Student's prediction interval for the mean of so many more runs."""
    size = len(values)
    if size < 2:
        return None
    return quantile(size - 1) * float(np.std(values, ddof=1)) * math.sqrt(1 / size + 1 / repetitions)
