"""Calibration: shapes as rows, rounds in other orders, timing that leaves a live run's memory alone, files, errors."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from cli import app
from executor.calibrate_batches import Stopwatch
from executor.calibrate_file import COLUMNS
from executor.calibrate_host import host_of, host_times
from executor.calibrate_rounds import Timing, noise, time_in_rounds
from executor.calibrate_shapes import MOST_CONTEXT_TOKENS, MOST_ENCODER_TOKENS, STAGES, Shape, grid_for
from executor.clocks import timer_and_meter
from executor.options import Options
from executor.runner import Runner
from executor.sizes import SIZES
from policies.limits import Limits
from sim.cost_model import CostModel
from sim.fit import make_profile
from sim.profiles import load_profile
from sim.regression import predict
from sim.timings import read_rows
from tests.live_loads import tiny
from workloads.models import MODELS

QUICK = ("calibrate", "--model", "tiny", "--quick", "--repeats", "1")


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def stopwatch(num_kv_blocks: int = 64) -> Stopwatch:
    loaded = tiny(torch.float32)
    limits = Limits(max_num_seqs=8, num_kv_blocks=num_kv_blocks, encoder_cache_rows=64)
    runner = Runner(loaded, limits, Options(device="cpu"))
    return Stopwatch(runner, timer_and_meter("thread_time", loaded.device)[0])


# Shapes


def test_a_row_costs_what_its_shape_costs() -> None:
    """The columns, priced as a row of a CSV, against the shape, priced as the plan that it came from."""
    profile, rng = load_profile("h200/qwen2-vl-7b"), random.Random(0)
    cost = CostModel.from_profile(profile, corrected=False)
    coefficients = {name: figure.value for name, figure in iter_coefficients(profile)}
    for _ in range(50):
        chunks = tuple((rng.randrange(1, 600), rng.randrange(0, 3000)) for _ in range(rng.randrange(4)))
        contexts = (rng.randrange(1, 5000),) * rng.randrange(0 if chunks else 1, 40)
        shape = Shape(chunks=chunks, contexts=contexts)
        row = pd.DataFrame([{"stage": shape.stage, **shape.counts()}])
        priced = cost.compute(list(chunks), len(contexts), sum(contexts)) / 1e6
        assert predict(coefficients, row, profile.tables)[0] == pytest.approx(
            priced, rel=2e-4
        )  # a prompt is rounded to a token


def iter_coefficients(profile: object) -> Iterator[tuple[str, object]]:
    return iter(profile.coefficients)  # type: ignore[attr-defined]  # pydantic gives (name, value)


def test_a_row_of_images() -> None:
    shape = Shape(items=((1, 4, 4), (1, 4, 4), (1, 4, 4)))
    assert shape.stage == "encoder"
    assert shape.counts() == dict.fromkeys(shape.counts(), 0) | {"images": 3, "tokens": 16}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("on_cuda", [False, True])
@pytest.mark.parametrize("quick", [False, True])
def test_a_grid_has_every_stage_and_stays_in_bounds(name: str, on_cuda: bool, quick: bool) -> None:
    shapes = grid_for(MODELS[name], on_cuda=on_cuda, quick=quick)
    assert {shape.stage for shape in shapes} == set(STAGES)
    assert len(set(shapes)) == len(shapes)
    for stage in STAGES:  # every coefficient needs a few sizes
        assert len({tuple(shape.counts().items()) for shape in shapes if shape.stage == stage}) >= 6
    assert all(sum(shape.totals) <= MOST_CONTEXT_TOKENS for shape in shapes)
    assert all(sum(h * w for _, h, w in shape.items) <= MOST_ENCODER_TOKENS for shape in shapes)


# Rounds

SHAPES = [Shape(contexts=(10,) * count) for count in (1, 2, 3, 4, 5)]


def test_rounds_go_through_all_shapes_each_in_another_order() -> None:
    seen: list[Shape] = []

    def timed(shape: Shape) -> int:
        seen.append(shape)
        return 1000 * len(seen)

    timings, interrupted = time_in_rounds(SHAPES, timed, repeats=4, seed=0, done=lambda number: None)
    rounds = [seen[start : start + 5] for start in range(0, 25, 5)]
    assert not interrupted
    assert [timing.shape for timing in timings] == SHAPES
    assert all(sorted(order, key=SHAPES.index) == SHAPES for order in rounds)
    assert len({tuple(map(SHAPES.index, order)) for order in rounds}) > 2
    assert all(len(timing.samples) == 4 and min(timing.samples) > 5000 for timing in timings), (
        "the first is not counted"
    )


def test_what_was_timed_before_an_interrupt_is_kept() -> None:
    calls = 0

    def timed(shape: Shape) -> int:
        nonlocal calls
        calls += 1
        if calls > 5 + 5 + 2:
            raise KeyboardInterrupt
        return 7

    timings, interrupted = time_in_rounds(SHAPES, timed, repeats=4, seed=0, done=lambda number: None)
    assert interrupted
    assert sorted(len(timing.samples) for timing in timings) == [1, 1, 1, 2, 2]


def test_a_median_and_its_noise() -> None:
    timing = Timing(SHAPES[0], [1_000_000, 3_000_000, 1_100_000])
    row = timing.row()
    assert (row["total_ms"], row["repeats"]) == (1.1, 3)
    assert row["cv"] == pytest.approx(0.6629, abs=1e-4)  # 1,126,943 / 1,700,000, the sample's deviation
    assert noise([timing, Timing(SHAPES[1], [5])]) == {"decode": 66.3}


# Timing


@pytest.mark.parametrize(
    "shape",
    [
        Shape(items=((1, 4, 4), (1, 2, 6))),
        Shape(chunks=((20, 0), (5, 30)), rows=12),
        Shape(contexts=(1, 17, 40)),
        Shape(chunks=((9, 3),), contexts=(60, 2), rows=4, before=((1, 4, 4),)),
    ],
)
def test_timing_touches_no_memory_of_a_live_run(shape: Shape) -> None:
    watch = stopwatch()
    runner = watch.runner
    for cache in (runner.kv.keys, runner.kv.values, runner.storage.rows):
        cache.normal_()
    before = [tensor.clone() for tensor in (runner.kv.keys[:, 1:], runner.kv.values[:, 1:], runner.storage.rows)]
    assert watch.time(shape) > 0
    after = (runner.kv.keys[:, 1:], runner.kv.values[:, 1:], runner.storage.rows)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_every_sequence_reads_pages_of_its_own_while_there_are_enough() -> None:
    tables = stopwatch(num_kv_blocks=12)._tables([33, 16, 100])
    assert (tables > 0).sum(axis=1).tolist() == [3, 1, 7]
    assert len(set(tables[tables > 0].tolist())) == 11
    crowded = stopwatch(num_kv_blocks=2)._tables([33, 16, 100])
    assert (crowded > 0).sum(axis=1).tolist() == [3, 1, 7]


def test_a_batch_is_what_its_shape_says() -> None:
    batch = stopwatch()._batch(Shape(chunks=((3, 4), (2, 0)), contexts=(9,), rows=2))
    assert batch.positions.tolist() == [[4, 5, 6, 0, 1, 8]] * 3
    assert batch.emit.tolist() == [2, 4, 5]
    assert batch.embed_at.tolist() == [0, 1]
    paged = batch.paged
    assert (paged.query_lens, paged.host_kv_lens, paged.num_chunks) == ([3, 2, 1], [7, 2, 9], 2)
    assert paged.query_starts.tolist() == [0, 3, 5, 6]
    assert paged.slots.max() < 16, "written to the padding page"


def test_host_time_is_that_of_full_batches_with_requests_in_the_queue() -> None:
    loaded, options = tiny(torch.float32), Options(device="cpu", clock="thread_time")
    times = host_times(loaded, 3, options)
    assert len(times) >= 30
    assert min(times) > 0
    assert host_of(loaded, options).ms > 0


# The command


def test_timings_become_a_profile(tmp_path: Path) -> None:
    csv = tmp_path / "some" / "tiny.csv"
    result = tandem(*QUICK, "--out", csv)
    assert result.exit_code == 0, result.output
    assert "noise (CV of repeats)" not in result.output, "one repeat tells no noise"
    assert pd.read_csv(csv, comment="#").columns.tolist() == list(COLUMNS)
    profile = make_profile(csv)
    assert (profile.model, profile.source.dtype, profile.source.package) == ("tiny", "float32", "tandem calibrate")
    assert profile.label.startswith("measured on ")
    assert profile.corrections.host.value > 0
    assert profile.corrections.encoder_offset.value == 0
    assert profile.memory.weights.value == tiny(torch.float32).weight_bytes
    assert [path.name for path in csv.parent.iterdir()] == ["tiny.csv"]


def test_noise_is_told(tmp_path: Path) -> None:
    result = tandem("calibrate", "--model", "tiny", "--quick", "--repeats", "2", "--out", tmp_path / "tiny.csv")
    assert "noise (CV of repeats): encoder " in result.output


def interrupted_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    time, calls = Stopwatch.time, 0

    def timed(self: Stopwatch, shape: Shape) -> int:
        nonlocal calls
        calls += 1
        if calls > count:
            raise KeyboardInterrupt
        return time(self, shape)

    monkeypatch.setattr(Stopwatch, "time", timed)


def test_an_interrupt_writes_what_there_is_marked_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = len(grid_for(MODELS["tiny"], on_cuda=False, quick=True))
    interrupted_after(monkeypatch, shapes + shapes - 5)
    csv = tmp_path / "tiny.csv"
    result = tandem(*QUICK, "--out", csv)
    assert result.exit_code == 130
    assert len(read_rows(csv)) == shapes - 5
    assert make_profile(csv).label.endswith("(interrupted, partial)")
    assert "#   partial: true" in csv.read_text(encoding="utf-8").splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.csv"]


def test_an_interrupt_before_anything_was_timed_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_after(monkeypatch, 3)
    result = tandem(*QUICK, "--out", tmp_path / "tiny.csv")
    assert result.exit_code == 130
    assert "nothing written" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "huge"), "no model 'huge'"),
        (("--model", "tiny", "--repeats", "0"), "repeats: 0 is not at least 1"),
        (("--model", "tiny", "--clock", "model"), "clock: the cost model is what a calibration is for"),
        (("--model", "tiny", "--clock", "sundial"), "clock: there is no 'sundial'"),
        (("--model", "tiny", "--clock", "cuda"), "clock: cuda events time a CUDA device"),
        (("--model", "tiny", "--dtype", "int4"), "dtype: there is no 'int4'"),
        (("--model", "tiny", "--device", "tpu"), "device: there is no 'tpu'"),
        (("--model", "tiny", "--threads", "0"), "threads"),
        (("--model", "tiny", "--out", "."), "is a folder"),
        (("--model", "tiny", "--out", "Makefile/tiny.csv"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = tandem("calibrate", "--quick", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none_is_one_line() -> None:
    result = tandem("calibrate", "--model", "tiny", "--device", "cuda")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "no CUDA device" in result.stderr
