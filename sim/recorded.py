"""Folders of runs read back: each file checked, and whether they belong together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sim.ensemble_output import MEMBERS
from sim.iteration_pieces import COLUMNS, TIMES
from sim.live_output import LIVE, PLANS
from sim.plan_line import PlanLine
from sim.plan_log import parsed, read_texts
from sim.request_log import RequestLog
from sim.scenario import Scenario
from sim.world import Resolved, resolve
from workloads.errors import InputError

EARLY = ("interrupted", "out of memory")  # verdicts of runs that may have ended between two records


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run as its folder has it; `resolved` is its scenario with the profile as it is today."""

    folder: Path
    resolved: Resolved
    about: Mapping[str, Any]  # run.json
    requests: pd.DataFrame
    iterations: pd.DataFrame | None  # where they were kept

    @property
    def verdict(self) -> str:
        return str(self.about["verdict"])

    @property
    def ended_early(self) -> bool:
        return self.verdict in EARLY


@dataclass(frozen=True, eq=False)
class RecordedLive(RecordedRun):
    """A live run with its plan log, as text and as read."""

    live: Mapping[str, Any]  # live.json
    texts: list[str]
    plans: list[PlanLine]

    @property
    def clock(self) -> str:
        return str(self.live["clock"])


def is_run(folder: Path) -> bool:
    return (folder / "run.json").is_file()


def read_run(folder: Path) -> RecordedRun:
    """A simulated run. Raises InputError, one line, where the folder holds none or one of its files is not sound."""
    _check_folder(folder)
    if (folder / LIVE).exists():
        raise InputError(f"{folder}: is a live run; the first folder is a simulated one, the second the live one")
    return RecordedRun(folder, *_common(folder, {}))


def read_live(folder: Path, changes: Mapping[str, Any]) -> RecordedLive:
    """A live run, its scenario with `changes`. Raises InputError as `read_run` does."""
    _check_folder(folder)
    if not (folder / LIVE).exists():
        raise InputError(f"{folder}: is no live run: it has no {LIVE}, which `tandem replay` writes")
    live = read_json(folder / LIVE, {"clock": str})
    common = _common(folder, changes)
    texts = read_texts(folder / PLANS)
    run = RecordedLive(folder, *common, live, texts, parsed(texts, folder / PLANS))
    _check_plans(run)
    return run


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder")
    if not is_run(folder):
        raise InputError(f"{folder}: holds no run: it has no run.json")
    if (folder / MEMBERS).exists():
        raise InputError(
            f"{folder}: holds several runs of one scenario: name one of them, as {next(folder.glob('seed-*'), folder)}"
        )


def _common(
    folder: Path, changes: Mapping[str, Any]
) -> tuple[Resolved, Mapping[str, Any], pd.DataFrame, pd.DataFrame | None]:
    about = read_json(folder / "run.json", {"name": str, "verdict": str, "partial": bool, "num_iterations": int})
    scenario = Scenario.load(folder / "scenario.yaml", changes)
    if scenario.name != about["name"]:
        raise InputError(f"{folder}: run.json is of {about['name']}, scenario.yaml of {scenario.name}")
    requests = read_table(folder / "requests.parquet", RequestLog().table())
    iterations = _iterations(folder / "iterations.parquet") if scenario.measure.iterations else None
    if iterations is not None and len(iterations) != about["num_iterations"]:
        raise InputError(f"{folder}: iterations.parquet is not of the run that run.json is of: {len(iterations)} rows")
    return resolve(scenario), about, requests, iterations


def read_json(path: Path, needed: Mapping[str, type]) -> Mapping[str, Any]:
    """A mapping that has these, of these types. Raises InputError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not a mapping")
    for name, kind in needed.items():
        if not isinstance(content.get(name), kind):
            raise InputError(f"{path}: {name} is missing, or not what it should be")
    return content


def _iterations(path: Path) -> pd.DataFrame:
    like = {name: pd.Series(dtype=float if name in TIMES else int) for name in COLUMNS}
    return read_table(path, pd.DataFrame(like | {"engine": pd.Series(dtype="category")}))


def read_parquet(path: Path) -> pd.DataFrame:
    """Raises InputError, one line."""
    try:
        table: pd.DataFrame = pq.read_table(path).to_pandas()
    except FileNotFoundError:
        raise InputError(f"{path}: is missing") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InputError(f"{path}: is not a whole Parquet file: {' '.join(str(error).split())}") from None
    return table


def read_table(path: Path, like: pd.DataFrame, unique: bool = True) -> pd.DataFrame:
    """With the columns of `like`, and of its types; a request stands in it once, if `unique`. Raises InputError."""
    table = read_parquet(path)
    if unique and "request_id" in table and table["request_id"].duplicated().any():
        raise InputError(f"{path}: a request_id stands there twice")
    kinds, wanted = ({str(name): _kind(frame[name]) for name in frame} for frame in (table, like))
    if kinds != wanted:
        name = next(name for name in {**wanted, **kinds} if kinds.get(name) != wanted.get(name))
        raise InputError(f"{path}: is no such table of a run: column {name} is missing, new or of another type")
    return table


def _kind(column: pd.Series[Any]) -> str:
    return column.dtype.kind if column.dtype.kind in "if" else "text"


def _check_plans(run: RecordedLive) -> None:
    """One line an iteration; a run that ended early may not have recorded its last one any more."""
    extra = len(run.plans) - int(run.about["num_iterations"])
    if not 0 <= extra <= run.ended_early:
        raise InputError(
            f"{run.folder}: {PLANS} has {len(run.plans)} iterations, the tables {run.about['num_iterations']}: "
            "they are not of one run"
        )
