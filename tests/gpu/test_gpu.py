"""On a GPU: the kernels beside the oracle, captured graphs beside plain forwards. Skipped where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the live half needs torch")
pytest.importorskip("triton", reason="no Triton for this platform")

import torch
from kernels import BARS, BATCHES, error
from paged_batches import Heads

from executor.calibrate_batches import Stopwatch
from executor.calibrate_shapes import Shape
from executor.clocks import timer_and_meter
from executor.graphs import Graphs
from executor.memory_stats import MemoryMeter
from executor.models import load_model
from executor.options import Options
from executor.runner import Runner
from policies.limits import Limits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CUDA = torch.device("cuda")
SHAPES = [Shape(contexts=(40, 300, 7, 90, 64)), Shape(chunks=((50, 0), (20, 100)), contexts=(80, 9))]


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("heads", [Heads(7, 4, 128, 16), Heads(2, 2, 16, 4)], ids=str)
def test_kernels_give_what_the_oracle_gives(heads, kind, dtype):
    assert error(heads, *BATCHES[kind], dtype, CUDA) <= BARS[dtype]


@pytest.fixture(scope="module")
def captured():
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=128, encoder_cache_rows=1, num_kv_blocks=200)
    options = Options(device="cuda", pad_queries=32)
    meter = MemoryMeter(CUDA)
    runner = Runner(load_model("tiny", CUDA, torch.float32), limits, options)
    runner.kv.keys.normal_()
    runner.kv.values.normal_()
    graphs = Graphs(runner, limits, options, max_blocks=40)
    assert graphs.warm_up() == []
    figures = meter.read()
    assert figures.device_allocations > 0 and figures.peak_reserved_bytes >= figures.peak_allocated_bytes > 0
    return runner, graphs


def test_the_modelled_allocator_counts_what_pytorchs_counts(tmp_path):
    """In a process of its own, where nothing else is allocated."""
    script = Path(__file__).parent / "allocator.py"
    done = subprocess.run(
        [sys.executable, script], env=os.environ | {"OUT": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.stage)
def test_replays_give_what_plain_forwards_give(captured, shape):
    runner, graphs = captured
    stopwatch = Stopwatch(runner, timer_and_meter("cuda", CUDA)[0])
    for _ in range(3):
        batch = stopwatch._batch(shape)
        want = runner.forward(batch)
        got = graphs.run(batch)
        assert got is not None and torch.allclose(got, want, rtol=0, atol=1e-3 * float(want.std()))
