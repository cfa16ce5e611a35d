"""What a profile leaves uncertain, drawn: by how much each stage is off, and how single iterations scatter about that.

Every draw comes from a counter: the same for the same iteration, however many are taken in one step.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.figures import Spread
from sim.profiles import Profile
from workloads.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Stage = Literal["encode", "prefill", "decode", "mixed"]

STAGES: tuple[Stage, ...] = ("encode", "prefill", "decode", "mixed")
BLOCK = 1024  # iterations whose noise is drawn together


class Blur:
    """One draw. `number` decides by how much stages are off, alike for all scenarios; with `seed` and the engine's
    `rank`, it decides the noise of each of that engine's iterations."""

    def __init__(self, spread: Spread, number: int, seed: int, rank: int, host: int) -> None:
        """`host` (ns) is of every iteration, and certain."""
        self.host = host
        spreads = {stage: getattr(spread, stage) for stage in STAGES}
        normals = np.random.default_rng([number, len(STAGES)]).standard_normal(len(STAGES))
        self.bias = {
            stage: math.exp(_sigma(spreads[stage].bias.value) * z) for stage, z in zip(STAGES, normals, strict=True)
        }
        self.noise = {stage: _sigma(spreads[stage].noise.value) for stage in STAGES}
        self._key = np.random.SeedSequence([number, seed, rank]).generate_state(2, np.uint64)
        self._factors = lru_cache(maxsize=16)(self._drawn)  # of a stage and a block, for single ones and many alike

    def one(self, elapsed: int, stage: Stage, iteration: int) -> int:
        """What a stage of an iteration takes, in ns, that takes `elapsed` by the cost model."""
        block, place = divmod(iteration, BLOCK)
        return int(np.rint(elapsed * self._factors(stage, block)[place]))

    def decodes(self, totals: Ints, first: int) -> Ints:
        """The same of successive iterations of decodes, the first of which has this number; with their host time."""
        last = first + len(totals)
        blocks = [self._factors("decode", block) for block in range(first // BLOCK, -(-last // BLOCK))]
        factors = np.concatenate(blocks)[first % BLOCK :][: len(totals)]
        return self.host + np.rint((totals - self.host) * factors).astype(np.int64)

    def _drawn(self, stage: Stage, block: int) -> Floats:
        """Of BLOCK iterations: lognormal, with a mean of the stage's bias."""
        counter = np.array([0, block, stage == "encode", 0], np.uint64)  # what is left of it no block uses up
        normals = np.random.Generator(np.random.Philox(key=self._key, counter=counter)).standard_normal(BLOCK)
        factors: Floats = self.bias[stage] * np.exp(self.noise[stage] * normals - self.noise[stage] ** 2 / 2)
        return factors


def check_spread(profile: Profile, name: str) -> Spread:
    """What the profile of this name leaves uncertain. Raises InputError where it does not say."""
    if profile.spread is None:
        raise InputError(no_spread(name))
    return profile.spread


def no_spread(name: str) -> str:
    return f"profile {name} states no spread to draw from; fit it again with `tandem fit`"


def _sigma(relative: float) -> float:
    """Of the logarithm, for a relative standard deviation."""
    return math.sqrt(math.log1p(relative**2))
