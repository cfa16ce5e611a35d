"""CUDA graphs: how long capturing takes, what replays save, and that they give the same logits.

On a CPU the static buffers run as they are, which shows the padding alone.
"""

import sys
import time
from dataclasses import asdict
from typing import Any

import torch
from common import Place, place, report

from executor.calibrate_batches import Stopwatch
from executor.calibrate_shapes import Shape
from executor.clocks import timer_and_meter
from executor.graphs import Graphs
from executor.memory_stats import MemoryMeter
from executor.models import load_model
from executor.options import Options
from executor.runner import Runner
from policies.limits import Limits

SHAPES = {
    "1 decode": Shape(contexts=(1000,)),
    "5 decodes": Shape(contexts=(40, 3000, 7, 900, 64)),
    "64 decodes": Shape(contexts=(1000,) * 64),
    "mixed": Shape(chunks=((1500, 0), (200, 1000)), contexts=(800,) * 16),
}
SMALL = {"5 decodes": Shape(contexts=(40, 90, 7, 9, 64)), "mixed": Shape(chunks=((15, 0), (20, 30)), contexts=(80, 9))}
BAR = 0.05  # of the logits' spread: in bfloat16 another batch size adds in another order
REPEATS = 7


def runner_and_graphs(where: Place) -> tuple[Runner, Graphs, list[str], float]:
    """With random keys and values in the cache, and the seconds that capturing took."""
    limits = Limits(
        max_num_seqs=64, max_num_batched_tokens=128 if where.rehearsal else 2048, encoder_cache_rows=1,
        num_kv_blocks=200 if where.rehearsal else 6000,
    )  # fmt: skip
    options = Options(device=str(where.device), pad_queries=32 if where.rehearsal else 512)
    runner = Runner(load_model(where.model, where.device, where.dtype), limits, options)
    runner.kv.keys.normal_()
    runner.kv.values.normal_()
    graphs = Graphs(runner, limits, options, max_blocks=200)
    start = time.perf_counter()
    warnings = graphs.warm_up()
    return runner, graphs, warnings, time.perf_counter() - start


@torch.inference_mode()
def figures_of(runner: Runner, graphs: Graphs, shape: Shape, where: Place) -> dict[str, Any]:
    timer, _ = timer_and_meter("wall" if where.rehearsal else "cuda", where.device)
    plain, captured = Stopwatch(runner, timer), Stopwatch(runner, timer, graphs)
    batch = plain._batch(shape)
    want = runner.forward(batch)
    got = graphs.run(batch)
    assert got is not None, "no graph takes this batch"
    figures: dict[str, Any] = {"difference": float((got - want).abs().max() / want.std())}
    figures["same_tokens"] = int((got.argmax(-1) == want.argmax(-1)).sum())
    figures["tokens"] = len(want)
    for name, stopwatch in (("plain_ms", plain), ("graph_ms", captured)):
        times = sorted(stopwatch.time(shape) for _ in range(REPEATS))
        figures[name] = round(times[REPEATS // 2] / 1e6, 3)
    return figures


def main() -> None:
    where = place(__doc__)
    meter = MemoryMeter(where.device)
    runner, graphs, warnings, seconds = runner_and_graphs(where)
    shapes = SMALL if where.rehearsal else SHAPES
    figures: dict[str, Any] = {name: figures_of(runner, graphs, shape, where) for name, shape in shapes.items()}
    speeds = ", ".join(f"{name} {f['plain_ms']} -> {f['graph_ms']} ms" for name, f in figures.items())
    worst = max(f["difference"] for f in figures.values())
    figures |= {"warnings": warnings, "capture_s": round(seconds, 2), "memory": asdict(meter.read())}
    report("graphs", f"captured in {seconds:.1f} s, off by {worst:.1e} of the spread; {speeds}", figures)
    sys.exit(bool(warnings) or not worst <= BAR)


if __name__ == "__main__":
    main()
