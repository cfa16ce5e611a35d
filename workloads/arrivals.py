"""When requests come: open-loop arrival processes in integer nanoseconds, and the closed loop of a fixed crowd."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.errors import InputError
from workloads.frozen import CHUNK, LATEST, MOST, NANOSECONDS, FloatArray, Frozen, IntArray, NonNegative, Positive


def nanoseconds(seconds: FloatArray, after: int = 0) -> IntArray:
    """Ascending seconds as integer nanoseconds; a rounding error takes none before the one above it, nor `after`."""
    times = np.rint(seconds * NANOSECONDS).astype(np.int64)
    return np.maximum.accumulate(np.maximum(times, after))


class _Open(Frozen):
    """An arrival process; `chunks` is endless, each chunk holding the next CHUNK times in order.

    Where the clock ends, so do they: InputError when a time past it is asked for, no sooner.
    """

    def chunks(self, rng: np.random.Generator) -> Iterator[IntArray]:
        total, latest, fit = 0.0, 0, CHUNK
        while fit == CHUNK:
            sums = total + np.cumsum(self._gaps(rng))
            seconds = self._seconds(sums)
            fit = int(np.searchsorted(seconds, LATEST / NANOSECONDS, side="right"))
            if fit:
                times = nanoseconds(seconds[:fit], latest)
                total, latest = float(sums[-1]), int(times[-1])
                yield times
        raise InputError("arrivals run past 146 years: the rate is too low for so many requests")

    def _gaps(self, rng: np.random.Generator) -> FloatArray:
        return rng.standard_exponential(CHUNK)

    def _seconds(self, sums: FloatArray) -> FloatArray:
        """The times that belong to running sums of gaps."""
        return sums


class _Zero(_Open):
    def _gaps(self, rng: np.random.Generator) -> FloatArray:
        return np.zeros(CHUNK)


class AtOnce(_Zero):
    """Everything at time 0."""

    kind: Literal["at_once"] = "at_once"


class Constant(_Open):
    """One request every 1 / `rate` seconds, the first at 0."""

    kind: Literal["constant"] = "constant"
    rate: Positive  # requests per second

    def _gaps(self, rng: np.random.Generator) -> FloatArray:
        return np.ones(CHUNK)

    def _seconds(self, sums: FloatArray) -> FloatArray:
        return (sums - 1) / self.rate


class Poisson(_Open):
    """Independent users: exponential gaps."""

    kind: Literal["poisson"] = "poisson"
    rate: Positive  # requests per second

    def _seconds(self, sums: FloatArray) -> FloatArray:
        return sums / self.rate


class Gamma(_Open):
    """Gamma-distributed gaps; `burstiness` is their shape, so 1 is Poisson and less is burstier (CV 1/sqrt(shape))."""

    kind: Literal["gamma"] = "gamma"
    rate: Positive  # requests per second
    burstiness: Annotated[float, Field(ge=1e-6, le=MOST, allow_inf_nan=False)]  # below, all gaps but a few are 0

    def _gaps(self, rng: np.random.Generator) -> FloatArray:
        return rng.gamma(self.burstiness, 1 / (self.rate * self.burstiness), CHUNK)


class Weibull(_Open):
    """Weibull-distributed gaps; `shape` 1 is Poisson and less is burstier."""

    kind: Literal["weibull"] = "weibull"
    rate: Positive  # requests per second
    shape: Annotated[
        float, Field(ge=0.05, le=MOST, allow_inf_nan=False)
    ]  # below, the mean gap is more than 1e18 typical ones

    def _gaps(self, rng: np.random.Generator) -> FloatArray:
        return rng.weibull(self.shape, CHUNK) / (self.rate * math.gamma(1 + 1 / self.shape))


class Ramp(_Open):
    """Poisson at a rate that goes linearly from `start_rate` to `end_rate` over `duration` seconds, then stays."""

    kind: Literal["ramp"] = "ramp"
    start_rate: NonNegative
    end_rate: Positive
    duration: Positive

    def _seconds(self, sums: FloatArray) -> FloatArray:
        slope = (self.end_rate - self.start_rate) / self.duration
        reached = (self.start_rate + self.end_rate) / 2 * self.duration  # expected arrivals during the ramp
        inside = np.minimum(sums, reached)  # expected arrivals by t, start_rate t + slope t^2 / 2, solved for t
        rate_then = np.sqrt(np.maximum(self.start_rate**2 + 2 * slope * inside, 0))
        return 2 * inside / (self.start_rate + rate_then) + np.maximum(sums - reached, 0) / self.end_rate


class Segment(Frozen):
    """A stretch of time with one rate."""

    duration: Positive
    rate: NonNegative


class Piecewise(_Open):
    """Poisson whose rate changes in steps; after the last segment it begins anew, or the last rate stays."""

    kind: Literal["piecewise"] = "piecewise"
    segments: Annotated[tuple[Segment, ...], Field(min_length=1, max_length=100_000)]
    repeat: bool = False

    @model_validator(mode="after")
    def _never_dries_up(self) -> "Piecewise":
        if not any(segment.rate for segment in self.segments):
            raise ValueError("the segments' rates must not all be zero")
        if not self.repeat and not self.segments[-1].rate:
            raise ValueError("the last segment stays, so its rate must be above zero (or set repeat: true)")
        return self

    @cached_property
    def _columns(self) -> tuple[FloatArray, FloatArray]:
        """All durations, and all rates."""
        return np.array([s.duration for s in self.segments]), np.array([s.rate for s in self.segments])

    def _seconds(self, sums: FloatArray) -> FloatArray:
        durations, rates = self._columns
        starts, ends = np.cumsum(durations) - durations, np.cumsum(durations * rates)  # in expected arrivals
        begins, busy = ends - durations * rates, rates > 0
        cycles = np.floor(sums / ends[-1]) if self.repeat else np.zeros_like(sums)
        rest = np.maximum(sums - cycles * ends[-1], 0)
        rest = np.minimum(rest, ends[-1]) if self.repeat else rest
        at = np.minimum(np.searchsorted(ends[busy], rest), busy.sum() - 1)
        begun: FloatArray = cycles * durations.sum() + starts[busy][at]
        since: FloatArray = (rest - begins[busy][at]) / rates[busy][at]
        return begun + since


class Exponential(Frozen):
    """Exponentially distributed seconds."""

    mean: Positive


class Concurrency(_Zero):
    """A closed loop: each of `users` sends the next request when the last one has ended and been thought about."""

    kind: Literal["concurrency"] = "concurrency"
    users: Annotated[int, Field(gt=0, le=1_000_000)]
    think_time: NonNegative | Exponential = 0.0

    def think(self, rng: np.random.Generator) -> int:
        """Nanoseconds until a user's next request."""
        seconds = self.think_time if isinstance(self.think_time, float) else rng.exponential(self.think_time.mean)
        return round(seconds * NANOSECONDS)


OpenArrivals = Annotated[AtOnce | Constant | Poisson | Gamma | Weibull | Ramp | Piecewise, Field(discriminator="kind")]
Arrivals = Annotated[
    AtOnce | Constant | Poisson | Gamma | Weibull | Ramp | Piecewise | Concurrency, Field(discriminator="kind")
]
