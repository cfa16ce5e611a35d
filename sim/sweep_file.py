"""A sweep as its YAML describes it: which scenario, which knobs with which values, and how they are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from sim.files import usable
from sim.published import Metric
from sim.scenario import Name, Replications
from sim.scenario_file import load
from sim.sweep_knobs import Knob, KnobPath, Range
from workloads.frozen import Frozen, Positive


class Grid(Frozen):
    """Every combination of the knobs' values."""

    kind: Literal["grid"] = "grid"


class Random(Frozen):
    """Settings drawn at random: of a list any value alike, of a range any number."""

    kind: Literal["random"] = "random"
    settings: Annotated[int, Field(ge=1, le=1_000_000)]  # how many are drawn; equal ones are one
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0


class MaxGoodput(Frozen):
    """The greatest rate at which enough requests keep the SLOs, of every combination of the knobs' values.

    The rate is doubled (or halved) until two rates lie on both sides of it, then the space between them is bisected.
    """

    kind: Literal["max_goodput"] = "max_goodput"
    attainment: Annotated[float, Field(gt=0, le=1)] = 0.9  # share of requests within every SLO
    rate: str = "workload.arrivals.rate"  # the path of what is searched
    start: Positive | None = None  # the first rate; left out: the scenario's
    tolerance: Annotated[float, Field(ge=1e-4, le=1)] = 0.02  # how far apart, relatively, both sides may stay
    max_simulations: Annotated[int, Field(ge=2, le=100)] = 15  # of one search


def _named(value: Any) -> Any:
    """A bare word is a search's kind."""
    return {"kind": value} if isinstance(value, str) else value


Search = Annotated[Grid | Random | MaxGoodput, Field(discriminator="kind"), BeforeValidator(_named)]


class Best(Frozen):
    """What makes one setting better than another: a figure of `summary.json`."""

    maximise: Metric | None = None
    minimise: Metric | None = None

    @model_validator(mode="after")
    def _one(self) -> Best:
        if (self.maximise is None) == (self.minimise is None):
            raise ValueError("give either maximise or minimise")
        return self

    @property
    def figure(self) -> str:
        return self.maximise or self.minimise or ""


def _beside(value: Path, info: ValidationInfo) -> Path:
    """A relative path starts at the folder of the sweep's file."""
    base = (info.context or {}).get("base")
    return usable(value if base is None else Path(base) / value)


class Sweep(Frozen):
    """One sweep: `Sweep.load("scenarios/sweeps/x.yaml")`."""

    name: Name = "sweep"  # left out: the file's
    scenario: Annotated[Path, AfterValidator(_beside)]
    set: dict[str, Any] = Field(default_factory=dict)  # dotted paths changed in it for every point
    knobs: dict[KnobPath, Knob] = Field(default_factory=dict)  # dotted path -> what it is set to
    replications: Replications | None = None  # of every setting, with successive seeds; left out: the scenario's
    search: Search = Grid()
    best: Best | None = None  # left out: most goodput where there are SLOs, else most throughput

    @model_validator(mode="after")
    def _fit_the_search(self) -> Sweep:
        ranges = [path for path, knob in self.knobs.items() if isinstance(knob, Range)]
        if ranges and not isinstance(self.search, Random):
            raise ValueError(f"knobs.{ranges[0]}: a range goes with search: {{kind: random, settings: N}}")
        if isinstance(self.search, MaxGoodput):
            if self.search.rate in self.knobs:
                raise ValueError(f"knobs.{self.search.rate}: is what the search varies")
            if self.best is not None:
                raise ValueError("best: goes with a grid or a random search; here the greatest rate is the best")
        elif not self.knobs:
            raise ValueError("knobs: there are none, so there is nothing to vary")
        return self

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """From a YAML file. Raises InputError, one line with the file and the path in it."""
        return load(cls, usable(path), {})
