"""Writes the folder of several runs of one scenario: what they come to together; each has a folder of its own in it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sim.files import remove_empty, remove_partials, whole, write_json, write_text, writing
from sim.output import FILES, TABLES, about, remove_plots, scenario_text
from sim.result import Run
from sim.scenario import Scenario

MEMBERS = "replications.parquet"
FOLDER = re.compile(r"seed-\d+")
AGAIN = "it runs again to the same figures"


def member_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}"


def write_ensemble(run: Run, scenario: Scenario, label: str, folder: Path) -> None:
    """`run` stands for all of `scenario`'s. Whoever finds a `run.json` finds all else beside it."""
    assert run.ensemble is not None
    with writing(folder):
        write_text(folder / "scenario.yaml", scenario_text(scenario, again=AGAIN))
        with whole(folder / MEMBERS) as partial:
            pq.write_table(pa.Table.from_pandas(run.ensemble.table, preserve_index=False), partial)
        write_json(run.summary, folder / "summary.json")
        seeds = {"seeds": [member.seed for member in run.ensemble.members], "wanted": run.ensemble.wanted}
        told = {name: value for name, value in about(run, label).items() if name != "num_iterations"}
        write_json(told | {"replications": seeds}, folder / "run.json")


def remove_ensemble(folder: Path) -> None:
    """What several runs left there, before another is written in their place; nothing that is not theirs."""
    with writing(folder):
        (folder / MEMBERS).unlink(missing_ok=True)
        for member in folder.glob("seed-*"):
            if FOLDER.fullmatch(member.name):
                _remove_run(member)
                remove_empty(member)


def remove_single(folder: Path) -> None:
    """A single run's files, before several are written there."""
    with writing(folder):
        _remove_run(folder)


def _remove_run(folder: Path) -> None:
    remove_plots(folder / "plots")
    remove_partials(folder)
    for name in ("run.json", *TABLES, *FILES):
        (folder / name).unlink(missing_ok=True)
