"""Writes a run's folder: each file appears whole or not at all, `run.json` last of all."""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel

from sim.files import remove_empty, remove_partials, whole, write_json, write_text, writing
from sim.iteration_file import FAST, write_iterations
from sim.result import Run
from workloads.sizes import ChoiceSize, FixedSize

AGAIN = {
    "simulated": "it runs again to the same tables",
    "executed": "`tandem run` simulates it to the same tables",
    "measured": "`tandem run` predicts it",
}
TIMELINE = "trace.json.gz"
FILES = ("scenario.yaml", "summary.json", TIMELINE, "run.json")
TABLES = ("requests.parquet", "iterations.parquet")
PACKAGES = ("tandem-serving", "numpy", "simpy", "pandas", "pyarrow")
PLOTS = re.compile(r"(latency_cdfs|ttft_breakdown|(iteration_timeline|occupancy|stalls|request_gantt)(-.*)?)\.png")
REPORT = "report.html"  # where `tandem report` writes by default


def write_run(run: Run, label: str, folder: Path) -> None:
    """Everything but plots and timeline. Whoever finds a `run.json` finds all files of one run beside it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_plots(folder / "plots")
        remove_partials(folder)
        (folder / "run.json").unlink(missing_ok=True)
        (folder / TIMELINE).unlink(missing_ok=True)  # of an earlier run
        write_text(folder / "scenario.yaml", scenario_text(run.scenario, again=AGAIN[run.origin]))
        write_requests(run.requests, folder / "requests.parquet")
        write_iterations(run, folder / "iterations.parquet")
        write_json(run.summary, folder / "summary.json")
        write_json(about(run, label), folder / "run.json")


def about(run: Run, label: str) -> dict[str, Any]:
    """What else there is to know of a run; nothing in it depends on when or where it ran."""
    return {
        "name": run.name,
        "label": label,
        "origin": run.origin,
        "seed": run.scenario.seed,
        "verdict": run.verdict,
        "partial": run.partial,
        "load": run.load,
        "notes": run.notes,
        "blockers": {str(request): reason for request, reason in run.blockers.items()},
        "decisions": f"{run.decisions % 2**64:016x}",
        "num_iterations": run.num_iterations,
        "profile": {"name": run.scenario.profile, "digest": run.profile.digest},
        "versions": dict(_versions()),
    }


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def scenario_text(scenario: BaseModel, again: str = AGAIN["simulated"]) -> str:
    """YAML that loads as the same scenario from wherever it lies; `again` says what it comes to."""
    content = plain(scenario)
    comment = f"# Scenario {content['name']} as it ran, every default and budget filled in; {again}."
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return f"{comment}\n{text}"


class _Dumper(yaml.SafeDumper):
    """Without anchors: equal parts are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def plain(value: Any) -> Any:
    """A scenario as one would write it: `kind` before what depends on it, sizes as `640x480`, no nulls."""
    match value:
        case FixedSize():
            return {"kind": value.kind, "value": _size(value.value)}
        case ChoiceSize():
            weights = {} if value.weights is None else {"weights": list(value.weights)}
            return {"kind": value.kind, "values": [_size(size) for size in value.values], **weights}
        case BaseModel():
            names = sorted(type(value).model_fields, key=lambda name: name != "kind")
            content = {name: getattr(value, name) for name in names}
            return {name: plain(field) for name, field in content.items() if field is not None}
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case Path():
            return str(value.resolve())
    return value


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def write_requests(requests: pd.DataFrame, path: Path) -> None:
    table = pa.table({name: _column(requests[name]) for name in requests})
    with whole(path) as partial:
        pq.write_table(table, partial, **FAST | {"use_dictionary": ["status", "reason", "engine"]})


def _column(values: pd.Series[Any]) -> pa.Array:
    """Numbers as they lie in memory, NaN for what never came; texts without what only pandas would know."""
    numeric = pd.api.types.is_numeric_dtype(values.dtype)
    return pa.array(values.to_numpy(), from_pandas=False) if numeric else pa.array(values, pa.string())


def remove_plots(folder: Path) -> None:
    """Those that an earlier run left there, and the folder with them if nothing else is in it."""
    for path in folder.glob("*.png"):
        if PLOTS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    remove_partials(folder)
    remove_empty(folder)
