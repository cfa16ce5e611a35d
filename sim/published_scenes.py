"""Runs published scenarios: as they stand with many seeds, and with other values of what is not stated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.claims import claims, kinds
from sim.ensemble import Ensemble
from sim.published import Published
from sim.published_page import Scene
from sim.replications import Several, ensembles
from sim.resolve import resolve
from sim.scenario import Scenario
from sim.sensitivity import Plan, evaluate
from workloads.errors import InputError

SEEDS = 16  # of a scenario as it stands


class Work(NamedTuple):
    """The runs of one scenario: those of its policies as it stands, then those of its settings."""

    file: Path
    published: Published
    plain: dict[str, Several]  # by policy
    plan: Plan | None  # where something is unstated

    @classmethod
    def of(cls, file: Path) -> Work:
        """Raises InputError where the scenario has no published figures."""
        published = Scenario.load(file).published
        if published is None:
            raise InputError(f"{file}: has no published figures")
        changes = {kind: {"policy.kind": kind, "measure.iterations": False} for kind in kinds(published)}
        plain = {kind: Several(resolve(Scenario.load(file, those)), SEEDS) for kind, those in changes.items()}
        return cls(file, published, plain, Plan.of(file, published) if published.unstated else None)

    @property
    def runs(self) -> list[Several]:
        return [*self.plain.values(), *(self.plan.needed.values() if self.plan else ())]

    def scene(self, simulated: Iterator[Ensemble]) -> Scene:
        """What its runs, in their order, come to."""
        told = claims(self.published, {kind: next(simulated) for kind in self.plain})
        settings = evaluate(self.plan, {key: next(simulated) for key in self.plan.needed}) if self.plan else ()
        return Scene(self.file.stem, self.published, told, settings)


def run_scenes(
    files: Sequence[Path], jobs: int | None = None, told: Callable[[int], None] = lambda _: None
) -> list[Scene]:
    """Every scenario's, in the order of the files; `told` hears how many runs are done."""
    works = [Work.of(file) for file in files]
    simulated = iter(ensembles([one for work in works for one in work.runs], jobs, told))
    return [work.scene(simulated) for work in works]
