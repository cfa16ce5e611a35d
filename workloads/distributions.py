"""How many: distributions of whole numbers, for token counts, images per request and frames."""

import math
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from workloads.frozen import FloatArray, Frozen, IntArray, Positive, Weight, Whole


def cumulative(weights: list[float]) -> FloatArray:
    """Running sum of weights over their total, ending in exactly 1."""
    sums = np.cumsum(np.asarray(weights, dtype=np.float64))
    return np.asarray(sums / sums[-1], dtype=np.float64)


def check_weights(num_values: int, weights: tuple[float, ...] | None) -> None:
    """Weights go with the values one to one, and some value can be drawn."""
    if weights is not None and len(weights) != num_values:
        raise ValueError(f"{num_values} values but {len(weights)} weights")
    if weights is not None and not any(weights):
        raise ValueError("weights must not all be zero")


class Fixed(Frozen):
    """Always the same number. In YAML a bare number means this."""

    kind: Literal["fixed"] = "fixed"
    value: Whole

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        return np.full(n, self.value, dtype=np.int64)

    def smallest(self) -> int:
        return self.value

    def largest(self) -> int:
        return self.value


class _Bounded(Frozen):
    """Numbers from `min` to `max`, both included."""

    min: Whole
    max: Whole

    @model_validator(mode="after")
    def _in_order(self) -> "_Bounded":
        if self.min > self.max:
            raise ValueError(f"min {self.min} exceeds max {self.max}")
        return self

    def smallest(self) -> int:
        return self.min

    def largest(self) -> int:
        return self.max


class Uniform(_Bounded):
    """Every whole number from `min` to `max` alike."""

    kind: Literal["uniform"] = "uniform"

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        return rng.integers(self.min, self.max, size=n, dtype=np.int64, endpoint=True)


class Lognormal(_Bounded):
    """A long tail, rounded and clipped to `min`..`max`; `mean` and `median` are those before clipping."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Positive | None = None
    median: Positive | None = None
    sigma: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]  # of the logarithm
    min: Whole = 1

    @model_validator(mode="after")
    def _one_centre(self) -> "Lognormal":
        if (self.mean is None) == (self.median is None):
            raise ValueError("give either mean or median")
        return self

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        with np.errstate(over="ignore"):  # a huge sigma gives inf, which the clip brings back
            values = np.exp(self._mu + self.sigma * rng.standard_normal(n))
        return np.clip(np.rint(values), self.min, self.max).astype(np.int64)

    @property
    def _mu(self) -> float:
        if self.median is not None:
            return math.log(self.median)
        assert self.mean is not None
        return math.log(self.mean) - self.sigma**2 / 2


class _Weighted(Frozen):
    """Draws from `_support`, the values that can occur with their cumulative probabilities."""

    @cached_property
    def _support(self) -> tuple[IntArray, FloatArray]:
        pairs = sorted((value, weight) for value, weight in self._pairs() if weight > 0)
        return np.array([value for value, _ in pairs], dtype=np.int64), cumulative([weight for _, weight in pairs])

    def _pairs(self) -> list[tuple[int, float]]:
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        values, cdf = self._support
        return values[np.searchsorted(cdf, rng.random(n), side="right")]

    def numbers(self) -> list[int]:
        """All values that can occur, ascending."""
        return [int(value) for value in self._support[0]]

    def smallest(self) -> int:
        return int(self._support[0][0])

    def largest(self) -> int:
        return int(self._support[0][-1])


class Choice(_Weighted):
    """One of a few values, by weight (equal ones if none are given)."""

    kind: Literal["choice"] = "choice"
    values: Annotated[tuple[Whole, ...], Field(min_length=1)]
    weights: tuple[Weight, ...] | None = None

    @model_validator(mode="after")
    def _weights_fit(self) -> "Choice":
        check_weights(len(self.values), self.weights)
        return self

    def _pairs(self) -> list[tuple[int, float]]:
        return list(zip(self.values, self.weights or (1.0,) * len(self.values), strict=True))


def _none_lost(value: Any, decode: ValidatorFunctionWrapHandler) -> Any:
    """`1` and `"1"` are two keys in YAML, but one number."""
    decoded = decode(value)
    if len(decoded) < len(value):
        raise ValueError("the same value stands twice")
    return decoded


class Empirical(_Weighted):
    """What was measured: a list of values, each as likely as any other, or a mapping of value to weight."""

    kind: Literal["empirical"] = "empirical"
    values: (
        Annotated[dict[Whole, Weight], Field(min_length=1), WrapValidator(_none_lost)]
        | Annotated[tuple[Whole, ...], Field(min_length=1)]
    )

    @model_validator(mode="after")
    def _some_weight(self) -> "Empirical":
        if isinstance(self.values, dict):
            check_weights(len(self.values), tuple(self.values.values()))
        return self

    def _pairs(self) -> list[tuple[int, float]]:
        if isinstance(self.values, dict):
            return list(self.values.items())
        numbers, counts = np.unique(np.array(self.values, dtype=np.int64), return_counts=True)
        return list(zip(numbers.tolist(), counts.tolist(), strict=True))


def _bare(value: Any) -> Any:
    if isinstance(value, bool | str | list):
        raise ValueError(f"must be a number, or a mapping with a kind, got {value!r}")
    return {"kind": "fixed", "value": value} if isinstance(value, int | float) else value


Lengths = Annotated[
    Annotated[Fixed | Uniform | Lognormal | Choice | Empirical, Field(discriminator="kind")], BeforeValidator(_bare)
]
