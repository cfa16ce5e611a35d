"""Which runs a folder of variants stands for: those of the last command that wrote there, not what lay there before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.ensemble_output import remove_ensemble, remove_single
from sim.files import write_json, writing
from sim.live_output import remove_live_files
from sim.recorded import is_run, read_json

VARIANTS = "variants.json"


def variants_in(folder: Path) -> list[Path]:
    """Runs in folders of this one: those of the last command; where nothing says which those are, all."""
    found = sorted(path for path in folder.iterdir() if is_run(path))
    if not (folder / VARIANTS).is_file():
        return found
    last = read_json(folder / VARIANTS, {"variants": list})["variants"]
    return [path for path in found if path.name in last]


def write_variants(base: Path, folders: Sequence[Path]) -> None:
    """The folders of `base` that a command wrote. A run that lay in `base` itself goes: nobody means it any more."""
    if [*folders] == [base]:
        with writing(base):
            (base / VARIANTS).unlink(missing_ok=True)
        return
    remove_live_files(base)
    remove_ensemble(base)
    remove_single(base)
    with writing(base):
        write_json({"variants": [folder.name for folder in folders]}, base / VARIANTS)
