"""From a row of a real server's figures to the scenario of that load, out of its engine's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.complaints import nearest
from sim.profiles import REPOSITORY
from sim.scenario import Scenario
from sim.serving_rows import ServingRow
from workloads.distributions import Fixed, Uniform
from workloads.errors import InputError
from workloads.synthetic import Synthetic

FOLDER = REPOSITORY / "scenarios" / "published"
SUFFIX = "_server.yaml"


def engine_file(engine: str) -> Path:
    """Raises InputError where there is no scenario of that engine."""
    known = sorted(file.name.removesuffix(SUFFIX) for file in FOLDER.glob(f"*{SUFFIX}"))
    if engine not in known:
        raise InputError(f"no scenario of engine {engine[:40]!r}{nearest(engine, known)}")
    return FOLDER / f"{engine}{SUFFIX}"


def scenario_of(row: ServingRow, changes: Mapping[str, Any] | None = None) -> Scenario:
    """The engine's scenario with the row's load; `changes` of dotted paths come last."""
    file = engine_file(row.engine)
    workload = Scenario.load(file).workload
    assert isinstance(workload, Synthetic)
    load = {
        "workload.num_requests": row.requests,
        "workload.arrivals.users": row.concurrency,
        "workload.images.count": row.images,
        "workload.images.size": row.size,
        "workload.text_tokens": _with_mean(workload.text_tokens, row.text_tokens),
        "workload.output_tokens": _with_mean(workload.output_tokens, row.output_tokens),
    }
    return Scenario.load(file, load | dict(changes or {}))


def _with_mean(lengths: Any, mean: float) -> dict[str, Any]:
    """Of the same kind as the engine's scenario has them: all alike, or from the same least on."""
    match lengths:
        case Fixed():
            return {"kind": "fixed", "value": max(1, round(mean))}
        case Uniform():
            if mean < lengths.min:
                raise InputError(f"a mean of {mean:g} tokens, and its engine's scenario draws {lengths.min} at least")
            return {"kind": "uniform", "min": lengths.min, "max": max(lengths.min, round(2 * mean) - lengths.min)}
    raise AssertionError(f"an engine's scenario has lengths that are alike or uniform, not {lengths.kind}")
