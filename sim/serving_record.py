"""Writes what was fitted: the costs into the engines' scenarios, and beside them how they were found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sim.files import write_json, write_text, writing
from sim.scenario import Scenario
from sim.serving_fit import FITTED, METHOD, Fit, with_costs
from sim.serving_scenario import FOLDER, engine_file
from sim.yaml_text import written
from workloads.errors import InputError

RECORD = FOLDER / "front_ends.json"


def write_fits(fits: Sequence[Fit], source: Path) -> list[Path]:
    """The costs into the engines' scenarios, and how they were found beside them; returns the files."""
    with writing(FOLDER):
        for found in fits:
            _write_front_end(found)
        content = {
            "rows": {"file": source.name, "images_and_users": [list(pair) for pair in FITTED]},
            "method": METHOD,
            "engines": {found.engine: {"ms": dict(found.costs), "loss": round(found.loss, 4)} for found in fits},
        }
        write_json(content, RECORD)
    return [*(engine_file(found.engine) for found in fits), RECORD]


def _write_front_end(found: Fit) -> None:
    """In the place of the line that is there."""
    file = engine_file(found.engine)
    costs = {tuple(path.split(".")): value for path, value in found.costs.items()}
    front_end = with_costs(Scenario.load(file).front_end, costs)
    line = f"front_end: {written(front_end.model_dump(exclude_defaults=True))}"
    text, number = re.subn(r"^front_end: .*$", line, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if number != 1:
        raise InputError(f"{file}: front_end should stand in one line of its own")
    write_text(file, text)
