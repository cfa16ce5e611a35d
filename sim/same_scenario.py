"""Whether two resolved scenarios ask for the same run, and if not, what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.recorded import RecordedLive, RecordedRun
from sim.scenario import Scenario
from sim.yaml_text import written
from workloads.errors import InputError

# what a run is called, how it is recorded, simulated and judged: none of it changes what happens
ASIDE = (
    "name",
    "replications",
    "published",
    "slo",
    "measure.iterations",
    "simulation.fast_path",
    "engine.free_gpu_memory_fraction",
)
# what a simulation predicts and a live run measures: it may differ, and is said
PREDICTED = ("profile", "engine.num_kv_blocks")


def check_same(run: RecordedRun, live: RecordedLive) -> list[str]:
    """Lines about what may differ and does. Raises InputError with what differs and may not."""
    differs = differences(run.resolved.scenario, live.resolved.scenario)
    exact = live.clock == "model"
    wrong = {path: pair for path, pair in differs.items() if exact or path not in PREDICTED}
    if wrong:
        told = "; ".join(f"{path} is {ours} in {run.folder}, {theirs} live" for path, (ours, theirs) in wrong.items())
        raise InputError(f"{live.folder}: another scenario: {told}; simulate {live.folder / 'scenario.yaml'} instead")
    return [f"{path}: {ours} simulated, {theirs} live" for path, (ours, theirs) in differs.items()]


def check_profile(live: RecordedLive) -> None:
    """Where the cost model told the time it must be the same still. Raises InputError if it is not."""
    then = live.about.get("profile")
    digest = then.get("digest") if isinstance(then, Mapping) else None
    if live.clock == "model" and digest != live.resolved.profile.digest:
        name = live.resolved.scenario.profile
        raise InputError(f"{live.folder}: profile {name} has changed since it told the time of this run; replay again")


def differences(ours: Scenario, theirs: Scenario) -> dict[str, tuple[str, str]]:
    """Dotted paths with both values, as YAML has them; of what changes what happens."""
    one, other = _flat(ours.model_dump()), _flat(theirs.model_dump())
    paths = [path for path in {**one, **other} if one.get(path) != other.get(path)]
    counted = [path for path in paths if not any(f"{path}.".startswith(f"{aside}.") for aside in ASIDE)]
    return {path: (_written(one, path), _written(other, path)) for path in counted}


def _flat(content: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        path = f"{place}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: _plain(value)}
    return flat


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
    return value


def _written(flat: Mapping[str, Any], path: str) -> str:
    text = written(flat[path]) if path in flat else "left out"
    return text if len(text) <= 60 else f"{text[:57]}..."
