"""The points of a sweep: settings of its knobs, each with several seeds, resolved and known by what they resolve to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sim.output import plain
from sim.profiles import load_profile
from sim.resolve import resolve
from sim.scenario import Scenario
from sim.scenario_file import assign, decode, default_name
from sim.sweep_file import Sweep
from sim.variants import value_names
from sim.yaml_text import read, written
from workloads.errors import InputError

Setting = Mapping[str, Any]  # dotted path -> value, of every knob
DIGITS = 16  # hexadecimal, of an id: among a million points two alike are less likely than 1 in 10 million
NAMELESS = ("name", "published")  # whatever these are, the point is the same


@dataclass(frozen=True)
class Point:
    """One simulation to be."""

    id: str
    setting: Setting
    replication: int
    seed: int
    scenario: str  # resolved, as JSON; empty where it is none
    reason: str = ""  # why it is none


class Points:
    """Makes a sweep's points from settings. Raises InputError where even the scenario that they change is wrong."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._base = sweep.scenario.parent
        self._content = {"name": default_name(sweep.scenario), **read(sweep.scenario)}
        base = self._checked(sweep)
        for path, value in sweep.set.items():
            assign(self._content, path, value)
        self.scenario = resolve(base).scenario
        self.replications = sweep.replications or base.replications

    def _checked(self, sweep: Sweep) -> Scenario:
        """Raises InputError with the file that is wrong: the scenario's, or the sweep's, which the caller knows."""
        try:
            return decode(Scenario, self._content, sweep.set, self._base, "set.")
        except InputError as error:
            raise error if str(error).startswith("set.") else InputError(f"{sweep.scenario}: {error}") from None

    def of(self, setting: Setting) -> list[Point]:
        """One for each replication."""
        return [self.point(setting, replication) for replication in range(self.replications)]

    def point(self, setting: Setting, replication: int) -> Point:
        """Whatever is wrong with its scenario is its reason."""
        seed = self.scenario.seed + replication
        try:
            scenario = resolve(self.changed(setting, seed)).scenario
        except InputError as error:
            content = {"base": self._content, "setting": dict(setting), "seed": seed}
            return Point(_hash([written(content)]), setting, replication, seed, "", str(error))
        return Point(identity(scenario), setting, replication, seed, json.dumps(plain(scenario)))

    def changed(self, setting: Setting, seed: int, replications: int = 1) -> Scenario:
        """The scenario of a setting, as one would have written it. Raises InputError with the knob's path."""
        changes = {**setting, "seed": seed, "replications": replications}
        return decode(Scenario, self._content, changes, self._base, "knobs.")


def identity(scenario: Scenario) -> str:
    """Of a resolved scenario, with the content of whatever files it names: equal where the same would be simulated."""
    content = {name: value for name, value in plain(scenario).items() if name not in NAMELESS}
    pools = [pool.profile for _, pool in scenario.pools.kinds()] if scenario.pools else []
    profiles = [_profile(name) for name in (scenario.profile, *pools) if name]
    trace = getattr(scenario.workload, "path", None)
    return _hash([json.dumps(content, sort_keys=True), *profiles, *([] if trace is None else [_content(trace)])])


def label(setting: Setting) -> str:
    """`fcfs num_kv_blocks=2000`: each value behind the end of its path; kinds tell enough by themselves."""
    names = value_names(list(setting))
    words = [f"{names[path]}={word(value)}" if names[path] else word(value) for path, value in setting.items()]
    return " ".join(words) or "the scenario"


def word(value: Any) -> str:
    """The same whether it comes from YAML or from a table, where numbers are floats and the rest is text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return value if isinstance(value, str) else written(value)


@cache
def _profile(name: str) -> str:
    return load_profile(name).digest


@cache
def _content(path: Path) -> str:
    """A trace's: of one file, or of all files in a folder."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    try:
        return _hash([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGITS]
