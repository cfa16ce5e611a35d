"""Speed and memory of the simulator: one JSON line a workload, as multiples of a bare SimPy timeout in the same run.

`python benchmarks/simulate.py [text] [stepwise] [images] [million]`; each workload runs in a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEXT = {"workload.num_requests": 10_000}
WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("text_only.yaml", TEXT),
    "stepwise": (
        "text_only.yaml",
        {
            "workload.num_requests": 256,
            "workload.arrivals": {"kind": "at_once"},
            "workload.text_tokens": {"kind": "uniform", "min": 64, "max": 80},
            "workload.output_tokens": 120_000,
            "engine.max_num_seqs": 256,
            "engine.num_kv_blocks": 2_000_000,
            "simulation.fast_path": False,
        },
    ),
    "images": ("bursty_images.yaml", {"workload.num_requests": 10_000, "policy.kind": "head_of_line"}),
    "million": ("text_only.yaml", {"workload.num_requests": 1_000_000, "measure.iterations": False}),
}


def bare_timeout(count: int = 200_000) -> float:
    """Seconds that SimPy takes for one timeout and nothing else."""
    import simpy

    def process(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(count):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    start = time.perf_counter()
    env.run()
    return (time.perf_counter() - start) / count


def simulate_and_write(name: str, changes: dict[str, Any], folder: Path) -> tuple[int, int]:
    """One workload, front end on, tables written; (requests, iterations)."""
    from sim import Scenario
    from sim.output import write_run
    from sim.run import simulate

    file, own = WORKLOADS[name]
    run = simulate(Scenario.load(ROOT / "scenarios" / file, own | changes))
    write_run(run, name, folder)
    return len(run.requests), run.num_iterations


def measure(name: str, folder: Path) -> dict[str, Any]:
    """A few requests first, so that imports and first uses are not counted; bare timeouts before and after."""
    simulate_and_write(name, {"workload.num_requests": 20, "workload.output_tokens": 20}, folder / "warm-up")
    bare = [bare_timeout() for _ in range(5)]
    start = time.perf_counter()
    requests, iterations = simulate_and_write(name, {}, folder / "run")
    elapsed = time.perf_counter() - start
    timeout = median(bare + [bare_timeout() for _ in range(5)])
    return {
        "workload": name,
        "requests": requests,
        "iterations": iterations,
        "requests_per_second": round(requests / elapsed, 1),
        "iterations_per_second": round(iterations / elapsed, 1),
        "bare_timeouts_per_request": round(elapsed / requests / timeout, 1),
        "bare_timeouts_per_iteration": round(elapsed / iterations / timeout, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main(names: list[str]) -> None:
    if names[:1] == ["--here"]:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(names[1], Path(folder))), flush=True)
        return
    for name in names or WORKLOADS:
        subprocess.run([sys.executable, __file__, "--here", name], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
