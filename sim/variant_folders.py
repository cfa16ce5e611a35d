"""Which runs a folder stands for: those that the last command wrote there, not what lay there before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.files import write_json, writing
from sim.recorded import is_run, read_json

VARIANTS = "variants.json"


def runs_of(folder: Path) -> list[Path]:
    """The folder itself, or the runs in folders of it; none where there is no run at all."""
    last = None
    if (folder / VARIANTS).is_file():
        last = read_json(folder / VARIANTS, {"variants": list})["variants"]
    elif is_run(folder):
        return [folder]
    return sorted(path for path in folder.iterdir() if is_run(path) and (last is None or path.name in last))


def write_variants(base: Path, folders: Sequence[Path]) -> None:
    """Which folders of `base` a command wrote, or that it wrote one run into `base` itself; all else stays there."""
    with writing(base):
        if [*folders] == [base]:
            (base / VARIANTS).unlink(missing_ok=True)
        else:
            write_json({"variants": [folder.name for folder in folders]}, base / VARIANTS)
