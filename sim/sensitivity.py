"""What would have to be true: a published scenario over the values that what is not stated may have had."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.claims import Claim, claims, kinds
from sim.ensemble import Ensemble
from sim.published import Published, Unstated
from sim.replications import Several
from sim.resolve import resolve
from sim.scenario import Scenario
from sim.yaml_text import written

SEEDS = 4  # of each setting
Values = tuple[Any, ...]  # one of each unstated knob


class Plan(NamedTuple):
    """The runs that a scenario's settings need: each policy's once for every value that matters to it."""

    file: Path
    published: Published
    needed: dict[tuple[str, str], Several]  # by policy and changes, as text

    @classmethod
    def of(cls, file: Path, published: Published) -> Plan:
        needed = {}
        for values in settings(published.unstated):
            for kind in kinds(published):
                changes = changes_of(published.unstated, values, kind)
                key = kind, written(changes)
                if key not in needed:
                    scenario = Scenario.load(file, changes | {"policy.kind": kind, "measure.iterations": False})
                    needed[key] = Several(resolve(scenario), SEEDS)
        return cls(file, published, needed)


class Setting(NamedTuple):
    """One combination of values, and what becomes of the published figures with it."""

    values: Values
    claims: list[Claim]


def settings(unstated: Sequence[Unstated]) -> list[Values]:
    """All combinations, the first knob varying slowest."""
    return list(itertools.product(*(knob.values for knob in unstated)))


def changes_of(unstated: Sequence[Unstated], values: Values, kind: str) -> dict[str, Any]:
    """Of the knobs that matter to a policy."""
    pairs = [(knob, value) for knob, value in zip(unstated, values, strict=True) if knob.policy in (None, kind)]
    return {path: value for knob, chosen in pairs for path, value in {knob.path: chosen, **knob.also}.items()}


def evaluate(plan: Plan, simulated: Mapping[tuple[str, str], Ensemble]) -> list[Setting]:
    """Every combination; `simulated` has the ensemble of each of the plan's runs."""
    found = []
    for values in settings(plan.published.unstated):
        by_policy = {
            kind: simulated[kind, written(changes_of(plan.published.unstated, values, kind))]
            for kind in kinds(plan.published)
        }
        found.append(Setting(values, claims(plan.published, by_policy)))
    return found


def crossings(found: Sequence[Setting], index: int) -> list[tuple[Setting, Setting]]:
    """Settings that differ in the first knob alone, neighbours there, between which the published number lies."""
    pairs = [(one, other) for one, other in itertools.product(found, found) if _neighbours(found, one, other)]
    return [(one, other) for one, other in pairs if _between(one.claims[index], other.claims[index])]


def _neighbours(found: Sequence[Setting], one: Setting, other: Setting) -> bool:
    along = list(dict.fromkeys(setting.values[0] for setting in found))
    places = along.index(one.values[0]), along.index(other.values[0])
    return one.values[1:] == other.values[1:] and places[1] - places[0] == 1


def _between(one: Claim, other: Claim) -> bool:
    if one.published is None or not one.simulated:
        return False
    return min(one.mean, other.mean) <= one.published <= max(one.mean, other.mean)
