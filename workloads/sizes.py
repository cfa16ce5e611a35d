"""How large: distributions of image sizes in pixels, and the largest item that a model makes of them."""

import math
import re
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from workloads.distributions import check_weights, cumulative
from workloads.frozen import CHUNK, FloatArray, Frozen, IntArray, Weight
from workloads.geometry import MAX_ASPECT
from workloads.models import VisionLanguageModel

Side = Annotated[int, Field(gt=0, le=65_535)]  # in pixels; JPEG has no longer one
MAX_RANGE = 2**24  # sizes in a range, 4096 by 4096: the largest is found by trying them


def _pair(value: Any) -> Any:
    """`1024x768` as a pair; anything else is left to pydantic."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", value)
        if match is None:
            raise ValueError(f"a size reads like 1024x768, got {value!r}")
        return int(match[1]), int(match[2])
    if isinstance(value, list | tuple) and len(value) != 2:
        raise ValueError(f"a size reads like 1024x768, got {len(value)} numbers")
    return value


def _check_aspect(size: tuple[int, int]) -> None:
    if max(size) > MAX_ASPECT * min(size):
        raise ValueError(f"an image's aspect ratio must not exceed {MAX_ASPECT}, got {size[0]}x{size[1]}")


Size = Annotated[tuple[Side, Side], BeforeValidator(_pair)]  # width, height


class FixedSize(Frozen):
    """Always the same size. In YAML a bare `1024x768` means this."""

    kind: Literal["fixed"] = "fixed"
    value: Size

    @model_validator(mode="after")
    def _aspect(self) -> "FixedSize":
        _check_aspect(self.value)
        return self

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        return np.full((n, 2), self.value, dtype=np.int64)

    def largest(self, model: VisionLanguageModel) -> tuple[int, int]:
        return self.value


class ChoiceSize(Frozen):
    """One of a few sizes, by weight (equal ones if none are given)."""

    kind: Literal["choice"] = "choice"
    values: Annotated[tuple[Size, ...], Field(min_length=1)]
    weights: tuple[Weight, ...] | None = None

    @model_validator(mode="after")
    def _weights_fit(self) -> "ChoiceSize":
        check_weights(len(self.values), self.weights)
        for size in self.values:
            _check_aspect(size)
        return self

    @cached_property
    def _support(self) -> tuple[list[tuple[int, int]], FloatArray]:
        weights = self.weights or (1.0,) * len(self.values)
        pairs = [(size, weight) for size, weight in zip(self.values, weights, strict=True) if weight > 0]
        return [size for size, _ in pairs], cumulative([weight for _, weight in pairs])

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        sizes, cdf = self._support
        return np.array(sizes, dtype=np.int64)[np.searchsorted(cdf, rng.random(n), side="right")]

    def largest(self, model: VisionLanguageModel) -> tuple[int, int]:
        return max(self._support[0], key=lambda size: model.item(None, "image", *size).embeds)


class Span(Frozen):
    """A side's range in pixels, both ends included."""

    min: Side
    max: Side

    @model_validator(mode="after")
    def _in_order(self) -> "Span":
        if self.min > self.max:
            raise ValueError(f"min {self.min} exceeds max {self.max}")
        return self


class UniformSize(Frozen):
    """Width and height each uniform in its range, independent of one another."""

    kind: Literal["uniform"] = "uniform"
    width: Span
    height: Span

    @model_validator(mode="after")
    def _aspects(self) -> "UniformSize":
        _check_aspect((self.width.min, self.height.max))
        _check_aspect((self.width.max, self.height.min))
        wide, high = (side.max - side.min + 1 for side in (self.width, self.height))
        if wide * high > MAX_RANGE:
            raise ValueError(f"a range has at most {MAX_RANGE} sizes, as 4096 by 4096 are, got {wide} by {high}")
        return self

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        low, high = (self.width.min, self.height.min), (self.width.max, self.height.max)
        return rng.integers(low, high, size=(n, 2), dtype=np.int64, endpoint=True)

    def largest(self, model: VisionLanguageModel) -> tuple[int, int]:
        return _largest_in(self, model)


@lru_cache
def _largest_in(sizes: UniformSize, model: VisionLanguageModel) -> tuple[int, int]:
    """The (width, height) with the most embeds. Not always the corner: 896x1120 can beat 1024x1024 (1280 to 1225)."""
    factor, width, height = model.factor, sizes.width, sizes.height
    corner = round(width.max / factor) * round(height.max / factor) * factor**2
    shrinks = corner > model.max_pixels
    grown = math.prod(math.sqrt(model.min_pixels * aspect) + factor for aspect in (MAX_ASPECT, 1 / MAX_ASPECT))
    most = model.max_pixels // factor**2 * factor**2 if shrinks else corner  # but for enlarged and for very thin ones
    known = most >= grown and (not shrinks or model.max_pixels >= MAX_ASPECT * factor**2)
    best, size, widths = 0, (width.max, height.max), np.arange(width.min, width.max + 1, dtype=np.float64)
    step = max(1, CHUNK // len(widths))
    for top in range(height.max, height.min - 1, -step):
        heights = np.arange(top, max(top - step, height.min - 1), -1, dtype=np.float64)
        embeds = _embeds(widths, heights[:, None], model)
        row, column = divmod(int(embeds.argmax()), len(widths))
        if embeds[row, column] > best:
            best, size = int(embeds[row, column]), (width.min + column, top - row)
        if known and best * factor**2 >= most:
            break
    return size


def _embeds(widths: FloatArray, heights: FloatArray, model: VisionLanguageModel) -> FloatArray:
    """`smart_resize` of heights with widths, all at once, in units of the factor."""
    factor, area = model.factor, widths * heights
    rows, columns = np.rint(heights / factor), np.rint(widths / factor)
    shrink, grow = np.sqrt(area / model.max_pixels), np.sqrt(model.min_pixels / area)
    shrunk = np.maximum(1, np.floor(heights / shrink / factor)) * np.maximum(1, np.floor(widths / shrink / factor))
    grown = np.ceil(heights * grow / factor) * np.ceil(widths * grow / factor)
    pixels = rows * columns * factor**2
    return np.where(pixels > model.max_pixels, shrunk, np.where(pixels < model.min_pixels, grown, rows * columns))


def _bare(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        return {"kind": "fixed", "value": value}
    if isinstance(value, int | float):
        raise ValueError(f"a size reads like 1024x768, got {value}")
    return value


Sizes = Annotated[Annotated[FixedSize | ChoiceSize | UniformSize, Field(discriminator="kind")], BeforeValidator(_bare)]
