"""The short table at the end of `run.sh`: what each step did, and the figures that matter of each."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def steps(work: Path) -> Iterator[str]:
    for line in (work / "steps.tsv").read_text().splitlines():
        name, outcome, seconds = line.split("\t")
        yield f"{name:<24} {outcome:<22} {seconds:>4} s"


def headlines(work: Path) -> Iterator[str]:
    table = work / "figures" / "table.txt"
    yield from table.read_text().splitlines() if table.exists() else []


def noises(work: Path) -> Iterator[str]:
    """The last lines of a calibration and its fit say what was seen."""
    for log in sorted(work.glob("logs/calibrate-*.log")) + sorted(work.glob("logs/fit-*.log")):
        yield f"{log.stem}: " + " | ".join(log.read_text(errors="replace").strip().splitlines()[-4:])[:400]


def comparisons(work: Path) -> Iterator[str]:
    for log in sorted(work.glob("logs/compare-*.log")):
        yield f"{log.stem}:"
        yield from (f"  {line}" for line in log.read_text(errors="replace").splitlines()[-40:])


def memory(work: Path) -> Iterator[str]:
    for live in sorted(work.glob("storage/*/live.json")):
        figures: dict[str, Any] = json.loads(live.read_text())["memory"]
        shown = ", ".join(f"{name} {_amount(name, value)}" for name, value in figures.items())
        yield f"storage {live.parent.name}: {shown}"


def _amount(name: str, value: int | None) -> str:
    if value is None:
        return "-"
    return f"{value / 2**30:.2f} GiB" if name.endswith("bytes") else str(value)


def main() -> None:
    work = Path(sys.argv[1])
    for part in (comparisons, noises, memory, headlines, steps):
        print(*part(work), "", sep="\n")


if __name__ == "__main__":
    main()
