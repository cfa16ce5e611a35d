"""Shapes timed between the iterations of a live run: the run's own, and the run is as it would be without."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from cli import app
from executor.calibrate_batches import Stopwatch
from executor.calibrate_plans import shapes_of
from executor.calibrate_shapes import STAGES, Shape
from executor.interleave import RECENT, Interleaved
from executor.live import LiveRun
from executor.options import Options
from executor.torch_backend import TorchBackend
from policies.plan import IterationPlan
from sim.fit import make_profile
from sim.plan_log import parsed
from sim.timings import read_rows
from tests.live_loads import random_requests, run_live, scenario, tight_engine, tiny
from workloads.errors import InputError


def run(folder: Path, seed: int = 3, **options: Any) -> LiveRun:
    rng = random.Random(seed)
    requests = random_requests(rng, count=8)
    asked = scenario(requests, tight_engine(rng, requests), "head_of_line", folder)
    return run_live(asked, tiny(), **options)


def interleaved(live: LiveRun) -> Interleaved:
    assert live.world.interleaved is not None
    return live.world.interleaved


def test_the_answers_are_those_of_a_run_without(tmp_path: Path) -> None:
    alone = run(tmp_path, clock="thread_time", logprobs=True)
    beside = run(tmp_path, clock="thread_time", logprobs=True, calibrate_every=1)
    assert alone.tokens["tokens"] == beside.tokens["tokens"]
    for one, other in zip(alone.tokens["logprobs"], beside.tokens["logprobs"], strict=True):
        assert one.as_py() == pytest.approx(other.as_py(), abs=1e-6)


def test_the_shapes_are_those_of_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Shape]] = []
    launch = TorchBackend.launch

    def spied(self: TorchBackend, plan: IterationPlan, *arguments: int) -> Any:
        seen.append(shapes_of(plan))
        return launch(self, plan, *arguments)

    monkeypatch.setattr(TorchBackend, "launch", spied)
    live = run(tmp_path, clock="thread_time")
    lines = parsed(live.plans, tmp_path)
    assert len(lines) == len(seen) > 20
    for line, shapes in zip(lines, seen, strict=True):
        items = [shape.items for shape in shapes if shape.items]
        assert items == [tuple(grid for *_, grid in line.encode)] * bool(line.encode)
        forward = [shape for shape in shapes if not shape.items]
        assert len(forward) == bool(line.prefill or line.num_decodes)
        for shape in forward:
            assert shape.chunks == tuple((tokens, cached) for _, tokens, cached in line.prefill)
            assert len(shape.contexts) == line.num_decodes
            assert sum(shape.contexts) == line.context_tokens
            assert shape.before == tuple(grid for *_, grid in line.encode)
    asked = live.world.scenario
    items = [item for r in asked.workload.requests(seed=asked.seed, model=asked.model) for item in r.items]
    assert sum(shape.rows for shapes in seen for shape in shapes) >= sum(item.embeds for item in items) > 0


def test_the_stages_take_turns_on_shapes_that_ran(tmp_path: Path) -> None:
    live = run(tmp_path, clock="thread_time", calibrate_every=1)
    calibration = interleaved(live).calibration("live", "thread_time", partial=False)
    rows = pd.DataFrame(calibration.rows)
    counts = rows.stage.value_counts()
    assert set(counts.index) == set(STAGES)
    assert counts.min() >= 3  # nothing of a stage can be drawn before it ran
    assert len(rows) == live.run.num_iterations - len(STAGES), "each stage's first is not counted"
    lines = parsed(live.plans, tmp_path)
    assert set(rows[rows.stage == "decode"].decodes) <= {line.num_decodes for line in lines}
    assert set(rows.images) - {0} <= {len(line.encode) for line in lines}


def test_a_run_of_text_alone_calibrates_all_stages_too(tmp_path: Path) -> None:
    rng = random.Random(0)
    requests = [request._replace(items=()) for request in random_requests(rng, count=6)]
    asked = scenario(requests, tight_engine(rng, requests), "head_of_line", tmp_path)
    live = run_live(asked, tiny(torch.float32), clock="thread_time", calibrate_every=1)
    csv = tmp_path / "calibration.csv"
    interleaved(live).calibration("text", "thread_time", partial=False).write(csv)
    assert set(read_rows(csv).stage) == set(STAGES)
    assert make_profile(csv).corrections.host.source.endswith("iterations of a live run of text")


def test_only_recent_shapes_are_remembered() -> None:
    assert all(pool.maxlen == RECENT for pool in _fresh()._recent.values())


def _fresh() -> Interleaved:
    from tests.test_calibrate import stopwatch

    runner = stopwatch().runner
    parts: list[Any] = [None] * 5
    return Interleaved(TorchBackend(runner, *parts), every=2)


def test_a_folder_holds_the_timings_of_its_own_run(tmp_path: Path) -> None:
    out, options = tmp_path / "out", ("--clock", "thread_time", "--no-plots", "--set", "workload.num_requests=6")
    arguments = ["replay", "scenarios/tiny_live.yaml", *options, "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--calibrate-every", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    profile = make_profile(out / "calibration.csv")
    assert (profile.model, profile.corrections.host.unit) == ("tiny", "ms")
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert not (out / "calibration.csv").exists()


@pytest.mark.parametrize("options", [{"clock": "model"}, {"real_time": True}])
def test_time_off_the_clock_needs_a_clock_that_can_be_stopped(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="calibrate_every"):
        Options(calibrate_every=1, **options)


def test_the_run_finds_its_own_shape_in_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After whatever was timed, what the run did last runs again, unrecorded."""
    ran: list[tuple[str, Shape]] = []
    launch, time = TorchBackend.launch, Stopwatch.time

    def launched(self: TorchBackend, plan: IterationPlan, *arguments: int) -> Any:
        ran.extend(("live", shape) for shape in shapes_of(plan))
        return launch(self, plan, *arguments)

    def timed(self: Stopwatch, shape: Shape) -> int:
        ran.append(("timed", shape))
        return time(self, shape)

    monkeypatch.setattr(TorchBackend, "launch", launched)
    monkeypatch.setattr(Stopwatch, "time", timed)
    live = run(tmp_path, clock="thread_time", calibrate_every=3)
    again = [place for place, (how, _) in enumerate(ran) if how == "timed"][1::2]
    assert len(again) > 5
    for place in again:
        assert [how for how, _ in ran[place - 2 : place]] == ["live", "timed"] and ran[place][1] == ran[place - 2][1]
    assert len(interleaved(live).calibration("x", "thread_time", False).rows) <= len(again)
