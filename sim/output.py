"""Writes a run's folder: each file appears whole or not at all, `run.json` last of all."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel

from sim.files import remove_empty, remove_partials, whole, write_json, write_text, writing
from sim.iteration_pieces import COLUMNS, TIMES, Columns
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
# 400,000 iterations: 23 ms and 11 MB; 18 ms more where columns may hold nulls, several times as long with dictionaries
FAST: dict[str, Any] = {
    "compression": "snappy",
    "use_dictionary": False,
    "write_statistics": False,
    "data_page_size": 2**17,
}
RISING = {  # snappy finds nothing in times that never repeat, and differences tell all of a number that counts up
    "compression": {name: "none" if name in ("start", "end") else "snappy" for name in (*COLUMNS, "engine")},
    "column_encoding": {"iteration": "DELTA_BINARY_PACKED"},
}
NAMED = FAST | {"use_dictionary": ["engine"]}
ROWS = 32768  # written at a time: groups of 2,000 take half as long again
ENGINE = pa.field("engine", pa.dictionary(pa.int16(), pa.string()), nullable=False)
ITERATIONS = pa.schema(
    [*(pa.field(name, pa.float64() if name in TIMES else pa.int64(), nullable=False) for name in COLUMNS), ENGINE]
)


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
        _write_iterations(run, folder / "iterations.parquet")
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


def _write_iterations(run: Run, path: Path) -> None:
    """Piece by piece, so that a long run needs no memory for the whole; none where they are not kept."""
    if not run.scenario.measure.iterations:
        path.unlink(missing_ok=True)
        return
    with whole(path) as partial, pq.ParquetWriter(partial, ITERATIONS, **NAMED | RISING) as writer:
        for table in _grouped(run.iteration_pieces(), run.engines):
            writer.write_table(table)
            del table  # so that the next one lies in the same memory


def _grouped(pieces: Iterable[Columns], engines: Sequence[str]) -> Iterator[pa.Table]:
    """Small pieces together, cut every ROWS rows however they came, so that equal tables are equal files."""
    rest, names = ITERATIONS.empty_table(), pa.array(engines)
    for piece in pieces:
        rest = pa.concat_tables([rest, _named(piece, names)])
        del piece
        while rest.num_rows >= ROWS:
            yield rest.slice(0, ROWS)
            rest = rest.slice(ROWS)
    yield rest


def _named(piece: Columns, names: pa.Array) -> pa.Table:
    """With the name of the engine in every row."""
    numbers = piece.get("engine", np.zeros(len(piece["start"]), np.int16))
    return pa.Table.from_pydict(piece | {"engine": pa.DictionaryArray.from_arrays(numbers, names)}, schema=ITERATIONS)


def remove_plots(folder: Path) -> None:
    """Those that an earlier run left there, and the folder with them if nothing else is in it."""
    for path in folder.glob("*.png"):
        if PLOTS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    remove_partials(folder)
    remove_empty(folder)
