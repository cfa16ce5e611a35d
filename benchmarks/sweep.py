"""Speed of `tandem sweep`: 200 points of 2,000 requests on one process, on two, and on a local Dask cluster of two.

`python benchmarks/sweep.py [--repeat N]`, one JSON line a way: seconds of the whole command, with 2 s of imports and
1.5 s of plots, and of its points as the command itself prints them, with the start of its processes; ratios of both.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SWEEP: dict[str, Any] = {
    "scenario": str(ROOT / "scenarios" / "bursty_images.yaml"),
    "set": {"workload.num_requests": 2000},
    "knobs": {
        "policy.kind": ["fcfs", "head_of_line", "eager", "footprint"],
        "engine.encoder_cache_rows": [4096, 8192],
        "workload.arrivals.rate": [2, 3, 4, 5, 6],
    },
    "replications": 5,
}
POINTS = 200


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """A scheduler and workers as `dask` starts them, each a process of one thread; its profiler would take a tenth."""
    address = "tcp://127.0.0.1:8799"
    scheduler = [str(BIN / "dask"), "scheduler", "--port", "8799", "--no-dashboard"]
    worker = [str(BIN / "dask"), "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w") as log:
        environment = os.environ | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
        options: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": folder, "env": environment}
        started = [subprocess.Popen(command, **options) for command in (scheduler, *[worker] * workers)]
        try:
            from distributed import Client

            with Client(address, timeout=60) as client:
                client.wait_for_workers(workers, timeout=60)
            yield address
        finally:
            for process in started[::-1]:
                process.terminate()
                process.wait()


class Seconds(NamedTuple):
    """That one sweep took."""

    command: float
    points: float


def sweep(file: Path, *options: str) -> Seconds:
    """All points anew."""
    with tempfile.TemporaryDirectory() as out:
        command = [str(BIN / "tandem"), "sweep", str(file), "--out", out, *options]
        start = time.perf_counter()
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        elapsed = time.perf_counter() - start
        assert len(list((Path(out) / "results").glob("*.parquet"))) == POINTS
    found = re.search(rf"{POINTS} points in ([\d.]+) s on ", told)
    assert found, told
    return Seconds(elapsed, float(found[1]))


def measure(file: Path) -> dict[str, Seconds]:
    """One of each, one after the other, so that all of them see the same machine."""
    one, two = sweep(file, "--jobs", "1"), sweep(file, "--jobs", "2")
    with cluster(2) as address:
        dask = sweep(file, "--dask", address)
    return {"one process": one, "two processes": two, "dask, two workers": dask}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=1)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.yaml"
        file.write_text(json.dumps(SWEEP))
        rounds = [measure(file) for _ in range(repeat)]
    for way in rounds[0]:
        told: dict[str, Any] = {"way": way, "points": POINTS}
        for part in Seconds._fields:
            times = [{name: getattr(seconds, part) for name, seconds in one.items()} for one in rounds]
            told[f"seconds of {part}"] = [round(one[way], 1) for one in times]
            told |= {
                f"{part} against {name}": round(median(one[name] / one[way] for one in times), 2) for name in times[0]
            }
        print(json.dumps({**told, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
