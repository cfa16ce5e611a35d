"""What all steps of `run.sh` share: where they run, with which model, and how they report."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402


class Place(NamedTuple):
    """A GPU with true shapes, or in a rehearsal a CPU with the tiny ones."""

    device: torch.device
    dtype: torch.dtype
    model: str
    rehearsal: bool


def place(description: str | None) -> Place:
    """As the step's arguments say: `--rehearse`, `--model NAME`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with the tiny model")
    parser.add_argument("--model", default="qwen2-vl-7b")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.rehearse:
        return Place(torch.device("cpu"), torch.bfloat16, "tiny", True)
    return Place(torch.device("cuda"), torch.bfloat16, asked.model, False)


def report(step: str, headline: str, figures: Any) -> None:
    """A line for the table, all figures in a file beside it, and both on the way."""
    folder = Path(os.environ.get("OUT", "."))
    (folder / f"{step}.json").write_text(json.dumps(figures, indent=1) + "\n")
    with (folder / "table.txt").open("a") as table:
        table.write(f"{step:<12} {headline}\n")
    print(json.dumps(figures), headline, sep="\n", flush=True)


def milliseconds(calls: list[Callable[[], Any]], device: torch.device, rounds: int = 5) -> float:
    """Of one call, on the device: on CUDA all are captured, so that launching them costs nothing; median of rounds.

    Give calls that touch different memory, or a cache that is not there in a real run is what gets measured.
    """
    for call in calls:
        call()
    if device.type != "cuda":
        return 0.0
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return median(_replayed(graph) for _ in range(rounds)) / len(calls)


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
