"""Tables of a profile that take the formula's place where kernels change in steps: straight lines between timings.

Beyond its timings a table goes on as the formula does, from where it ends. It never falls where work grows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from workloads.frozen import Frozen, Positive

Steps = Annotated[tuple[PositiveInt, ...], Field(min_length=2)]


class GemmTable(Frozen):
    """Matrix products of the language model, by the tokens of the iteration."""

    tokens: Steps
    ms: tuple[Positive, ...]
    source: str

    @model_validator(mode="after")
    def _sound(self) -> GemmTable:
        _check_rising("tokens", self.tokens)
        _check_times(self.ms, len(self.tokens))
        return self

    def scaled(self, factor: float) -> GemmTable:
        return self.model_copy(update={"ms": tuple(ms * factor for ms in self.ms)})

    def at(self, tokens: float, formula: Callable[[float], float]) -> float:
        """In the unit of its times, whatever the unit of `formula`."""
        near = _within(tokens, self.tokens)
        below, share = _place(near, self.tokens)
        ms = _between(self.ms[below], self.ms[below + 1], share)
        return ms if near == tokens else _beyond(ms, formula(near), formula(tokens))


class EncodeTable(Frozen):
    """The encoder, by images in a call and pre-merger tokens of each; `ms` has a row for each number of images.

    Frames of several sizes count as so many of their mean size, each token's own.
    """

    images: Steps
    tokens: Steps
    ms: Annotated[tuple[tuple[Positive, ...], ...], Field(min_length=2)]
    source: str

    @model_validator(mode="after")
    def _sound(self) -> EncodeTable:
        _check_rising("images", self.images)
        _check_rising("tokens", self.tokens)
        for line in self.ms:
            _check_times(line, len(self.tokens))
        for line in zip(*self.ms, strict=True):
            _check_times(line, len(self.images))
        return self

    def scaled(self, factor: float) -> EncodeTable:
        return self.model_copy(update={"ms": tuple(tuple(ms * factor for ms in line) for line in self.ms)})

    def at(self, images: float, tokens: float, formula: Callable[[float, float], float]) -> float:
        """In the unit of its times; `images` and `tokens` need not be whole numbers."""
        number, size = _within(images, self.images), _within(tokens, self.tokens)
        below, share = _place(size, self.tokens)
        row, part = _place(number, self.images)
        few, many = (_between(line[below], line[below + 1], share) for line in self.ms[row : row + 2])
        ms = _between(few, many, part)
        if (number, size) == (images, tokens):
            return ms
        return _beyond(ms, formula(number, size), formula(images, tokens))


class Tables(Frozen):
    """Of each part of the formula, the table that takes its place, if one does."""

    encode: EncodeTable | None = None
    gemm: GemmTable | None = None

    def scaled(self, *, encode: float, gemm: float) -> Tables:
        """All times times a factor, to another unit."""
        tables = {"encode": self.encode and self.encode.scaled(encode), "gemm": self.gemm and self.gemm.scaled(gemm)}
        return self.model_copy(update=tables)


NO_TABLES = Tables()


def _within(value: float, steps: Sequence[int]) -> float:
    return min(max(value, steps[0]), steps[-1])


def _place(value: float, steps: Sequence[int]) -> tuple[int, float]:
    """The step below, and how far it is to the one above, from 0 to 1."""
    below = min(bisect_right(steps, value), len(steps) - 1) - 1
    return below, (value - steps[below]) / (steps[below + 1] - steps[below])


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _beyond(edge: float, formula_at_edge: float, formula: float) -> float:
    """In proportion to the formula; a formula of nothing leaves the table's edge."""
    return edge * formula / formula_at_edge if formula_at_edge else edge


def _check_rising(name: str, steps: Sequence[int]) -> None:
    if any(after <= before for before, after in pairwise(steps)):
        raise ValueError(f"{name} must rise from one to the next")


def _check_times(ms: Sequence[float], number: int) -> None:
    if len(ms) != number:
        raise ValueError(f"ms has {len(ms)} times for {number} shapes")
    if any(after < before for before, after in pairwise(ms)):
        raise ValueError("ms must not fall where work grows")
