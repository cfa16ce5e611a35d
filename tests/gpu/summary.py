"""The short table at the end of `run.sh`: what each step did, and the figures that matter of each."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = ("mean_ttft_ms", "p99_ttft_ms", "mean_itl_ms", "mean_e2el_ms")


def steps(work: Path) -> Iterator[str]:
    for line in (work / "steps.tsv").read_text().splitlines():
        name, outcome, seconds = line.split("\t")
        yield f"{name:<24} {outcome:<22} {seconds:>4} s"


def headlines(work: Path) -> Iterator[str]:
    table = work / "figures" / "table.txt"
    yield from table.read_text().splitlines() if table.exists() else []


def noises(work: Path) -> Iterator[str]:
    """What a calibration and its fit said last."""
    for log in sorted(work.glob("logs/calibrate-*.log")) + sorted(work.glob("logs/fit-*.log")):
        lines = log.read_text(errors="replace").splitlines()[-5:]
        yield f"{log.stem}: " + " | ".join(" ".join(line.split()) for line in lines)[:300]


def comparisons(work: Path) -> Iterator[str]:
    """Every variant in a line: errors in percent, simulated against measured."""
    for path in sorted(work.glob("runs/*.live/compare.json")):
        found = json.loads(path.read_text())
        yield f"{path.parent.name}: errors in percent, teacher-forced by stage, free-running by figure"
        yield from (f"  {name:<24} {_errors(variant)}" for name, variant in found["variants"].items())
        taus = {figure: found["kendall_tau"].get(figure) for figure in FIGURES} if "kendall_tau" in found else {}
        yield "  Kendall's tau: " + ", ".join(f"{name} {_signed(tau)}" for name, tau in taus.items())


def _errors(variant: dict[str, Any]) -> str:
    twin = "identical" if variant["twin"]["identical"] else "DIFFERENT"
    forced = variant["teacher_forced"]["stages"]
    free = variant["free_running"]["figures"]
    stages = " ".join(f"{name} {_signed(stage['error_percent'])}" for name, stage in forced.items())
    figures = " ".join(f"{name} {_signed(free[name]['error_percent'])}" for name in FIGURES if name in free)
    return f"twin {twin}; {stages}; {figures}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


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
        try:
            print(*part(work), "", sep="\n")
        except Exception as error:  # one broken file leaves the rest of the table readable
            print(f"{part.__name__}: {type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main()
