"""Which folders `tandem compare` lays side by side: two runs, or the variants that two folders have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sim.files import usable
from sim.live_output import LIVE
from sim.variant_folders import runs_of
from workloads.errors import InputError


@dataclass(frozen=True)
class Pairs:
    """(label, first, second) of each; the label is empty for the only pair."""

    second: Path  # where it is written what came of it
    folders: list[tuple[str, Path, Path]]
    left_out: list[str]  # variants that are in one of both folders only

    @property
    def live(self) -> bool:
        """Whether the second ones are live runs, all of them. Raises InputError where some are."""
        kinds = {(folder / LIVE).exists() for _, _, folder in self.folders}
        if len(kinds) > 1:
            raise InputError(f"{self.second}: some of its variants are live runs, others are not")
        return kinds.pop()


def pairs(first: Path, second: Path) -> Pairs:
    """The two folders, or their sub-folders of the same names. Raises InputError where there are none."""
    first, second = usable(first), usable(second)
    for folder in (first, second):
        if not folder.is_dir():
            raise InputError(f"{folder}: is no folder")
    ours, theirs = _variants(first), _variants(second)
    if not ours and not theirs:
        return Pairs(second, [("", first, second)], [])
    common = [name for name in theirs if name in ours]
    if not common:
        raise InputError(f"{first} and {second}: no variant is in both, or only one of them has variants")
    left_out = sorted({*ours, *theirs} - {*common})
    return Pairs(second, [(name, first / name, second / name) for name in common], left_out)


def _variants(folder: Path) -> list[str]:
    return [path.name for path in runs_of(folder) if path != folder]
