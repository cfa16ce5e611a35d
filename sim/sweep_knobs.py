"""What a sweep varies: dotted paths of a scenario, each with a list of values or a range to draw from."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sim.yaml_text import shown, written
from workloads.errors import InputError
from workloads.frozen import Frozen

DIGITS = 6  # of a number that is drawn, so that it reads well and means the same when it is typed
OWN = {
    "name": "the sweep's is its own",
    "seed": "replications vary it",
    "replications": "the sweep's are its own",
    "published": "it changes nothing",
}


class Range(Frozen):
    """Numbers from `min` to `max`, for a random search."""

    min: float = Field(allow_inf_nan=False)
    max: float = Field(allow_inf_nan=False)
    log: bool = False  # each order of magnitude alike
    whole: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Range:
        if self.min >= self.max:
            raise ValueError(f"min {self.min:g} is not below max {self.max:g}")
        if self.log and self.min <= 0:
            raise ValueError(f"min {self.min:g}: with log: true it is above 0")
        return self

    def draw(self, rng: np.random.Generator) -> int | float:
        if self.log:
            value = float(np.exp(rng.uniform(np.log(self.min), np.log(self.max))))
        else:
            value = float(rng.uniform(self.min, self.max))
        return round(value) if self.whole else float(f"{value:.{DIGITS}g}")


def _differ(values: tuple[Any, ...]) -> tuple[Any, ...]:
    texts = [written(value) for value in values]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise InputError(f"{twice} stands there twice")
    return values


def _knob(value: Any) -> Any:
    """A range is a section, anything else a list."""
    if isinstance(value, dict | Range):
        return Range.model_validate(value)
    if not isinstance(value, list | tuple):
        raise InputError(f"should be a list of values, or a range with min and max, not {shown(value)}")
    if not value:
        raise InputError("is empty; it needs at least one value")
    return _differ(tuple(value))


def _path(value: str) -> str:
    if reason := OWN.get(value.split(".")[0]):
        raise InputError(f"{value} is no knob: {reason}")
    return value


Knob = Annotated[tuple[Any, ...] | Range, BeforeValidator(_knob)]
KnobPath = Annotated[str, AfterValidator(_path)]
