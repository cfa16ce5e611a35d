"""Live runs on a CPU: equal to the simulation under the model's clock, and sound when something goes wrong."""

from __future__ import annotations

import os
import random
import signal
import threading
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from live_loads import random_requests, run_live, scenario, tight_engine, tiny
from PIL import Image

from executor.live import LiveRun, LiveWorld
from executor.options import Options
from executor.prepare import prepare
from executor.real_time import RealTime
from executor.runner import Runner
from policies import POLICIES
from sim import Scenario
from sim.interrupts import between_events
from sim.plan_log import parsed
from sim.run import serve, simulate
from sim.twin import rerun, twin
from sim.world import resolve
from workloads.errors import InputError

NAMES = [policy().kind for policy in POLICIES]
model = cache(lambda: tiny(torch.float32))


def asked(folder: Path, policy: str = "head_of_line", seed: int = 3, **more: Any) -> Scenario:
    rng = random.Random(seed)
    requests = random_requests(rng, 8)
    return scenario(requests, tight_engine(rng, requests), policy, folder, **more)


def assert_equal(one: Any, other: Any) -> None:
    pd.testing.assert_frame_equal(one.requests, other.requests, check_exact=True)
    pd.testing.assert_frame_equal(one.iterations, other.iterations, check_exact=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", NAMES)
def test_the_models_clock_gives_the_simulation(policy: str, seed: int, tmp_path: Path) -> None:
    live = run_live(asked(tmp_path, policy, seed), model())
    assert_equal(live.run, simulate(live.run.scenario))
    assert live.plans == rerun(resolve(live.run.scenario)).texts
    assert live.run.origin == "executed" and "cost model's" in live.run.source


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("clock", ["wall", "thread_time"])
def test_measured_times_fed_back_give_the_same_run(policy: str, clock: str, tmp_path: Path) -> None:
    live = run_live(asked(tmp_path, policy), model(), clock=clock)
    again = twin(resolve(live.run.scenario), parsed(live.plans, tmp_path))
    assert again.difference is None and again.texts == live.plans
    assert_equal(again.run, live.run)
    assert live.run.origin == "measured" and (live.run.iterations.compute > 0).all()


def test_real_time_waits_for_arrivals(tmp_path: Path) -> None:
    import time

    start = time.perf_counter()
    live = run_live(asked(tmp_path), model(), clock="wall", real_time=True)
    assert time.perf_counter() - start > live.run.requests.arrival.max()
    assert live.run.verdict == "finished"


def test_host_time_is_metered(tmp_path: Path) -> None:
    live = run_live(asked(tmp_path), model(), clock="wall")
    assert (live.run.iterations.host > 0).all() and live.run.iterations.host.mean() < 0.1


@pytest.mark.parametrize("storage", ["rows", "per_item"])
def test_how_outputs_are_stored_changes_no_token(storage: str, tmp_path: Path) -> None:
    policy = "eager"
    expected = run_live(asked(tmp_path, policy), model()).tokens
    live = run_live(asked(tmp_path, policy), model(), encoder_storage=storage)
    assert live.tokens.equals(expected)


def test_items_are_forgotten_with_their_entries(tmp_path: Path) -> None:
    live = run_live(asked(tmp_path, "footprint"), model(), encoder_storage="per_item")
    entries = list(live.world.state.cache)
    assert len(live.world.runner.storage._outputs) <= len(entries)  # type: ignore[attr-defined]


def test_unbudgeted_rows_grow(tmp_path: Path) -> None:
    live = run_live(asked(tmp_path, "unbudgeted"), model())
    assert len(live.world.runner.storage.rows) > 0  # type: ignore[attr-defined]
    assert live.run.verdict == "finished"


def test_answers_can_be_drawn_and_are_the_same_again(tmp_path: Path) -> None:
    options = {"temperature": 1.0, "logprobs": True}
    one, other = (run_live(asked(tmp_path), model(), **options).tokens for _ in range(2))
    assert one.equals(other) and not one["tokens"].equals(run_live(asked(tmp_path), model()).tokens["tokens"])
    for tokens, logprobs in zip(one["tokens"].to_pylist(), one["logprobs"].to_pylist(), strict=True):
        assert len(tokens) == len(logprobs) and all(value <= 0 for value in logprobs)


# What goes wrong


def pictures(folder: Path, broken: int = 0) -> Path:
    folder.mkdir()
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 255, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    for index in range(broken):
        (folder / f"{index}.png").write_bytes(b"no picture")
    return folder


def test_pictures_come_from_files(tmp_path: Path) -> None:
    live = run_live(asked(tmp_path), model(), images=pictures(tmp_path / "pictures"))
    assert live.run.verdict == "finished"
    assert not live.tokens.equals(run_live(asked(tmp_path), model()).tokens)


@pytest.mark.parametrize("clock", ["model", "wall"])
def test_a_broken_picture_fails_its_owners_alone(clock: str, tmp_path: Path) -> None:
    live = run_live(asked(tmp_path), model(), clock=clock, images=pictures(tmp_path / "pictures", broken=2))
    status = live.run.requests.set_index("request_id").status
    assert set(status) == {"failed", "finished"}
    failed = live.run.requests[live.run.requests.status == "failed"]
    assert (failed.num_items > 0).all() and failed.reason.str.contains("cannot be read").all()
    assert live.world.state.pool.num_used == 0 and live.world.state.cache.held_rows == 0
    again = twin(resolve(live.run.scenario), parsed(live.plans, tmp_path))
    assert again.texts == live.plans
    assert_equal(again.run, live.run)


def _fails_at(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, call: int) -> None:
    original, calls = getattr(Runner, name), []

    def failing(self: Runner, *arguments: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            raise error
        return original(self, *arguments)

    monkeypatch.setattr(Runner, name, failing)


def test_an_error_in_the_encoder_is_tried_item_by_item(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = run_live(asked(tmp_path), model()).tokens
    _fails_at(monkeypatch, "encode", ValueError("odd"), 1)
    assert run_live(asked(tmp_path), model()).tokens.equals(expected)


@pytest.mark.parametrize("stage", ["encode", "forward"])
def test_out_of_memory_ends_the_run_with_the_tables_so_far(
    stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fails_at(monkeypatch, stage, torch.OutOfMemoryError("CUDA out of memory. Tried"), 4)
    live = run_live(asked(tmp_path), model(), clock="wall")
    assert live.run.verdict == "out of memory" and live.run.allocation_failures == 1
    assert any("CUDA out of memory" in note for note in live.run.notes)
    assert len(live.run.requests) and (live.run.requests.status == "unfinished").any()


def test_an_interrupt_keeps_what_was_finished(tmp_path: Path) -> None:
    options = Options(clock="model")
    checked = prepare(asked(tmp_path), model(), options).checked
    world = LiveWorld(checked, model(), options, progress=_interrupt_at(3))
    interrupted = serve(world, checked.notes)
    assert interrupted.partial and (interrupted.requests.status == "finished").sum() >= 3


def _interrupt_at(done: int) -> Any:
    def progress(count: int) -> None:
        if count == done:
            raise KeyboardInterrupt

    return progress


def wrong(folder: Path, **options: Any) -> str:
    from executor.prepare import load_for

    with pytest.raises(InputError) as error:
        chosen = Options(**options)
        loaded = load_for(asked(folder), chosen)
        prepare(asked(folder), loaded, chosen)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    assert "no CUDA device here" in wrong(tmp_path, device="cuda") or torch.cuda.is_available()
    assert "neither cpu nor cuda" in wrong(tmp_path, device="meta")
    assert "there is no" in wrong(tmp_path, device="gpu")
    assert "dtype" in wrong(tmp_path, dtype="int8")
    assert "clock" in wrong(tmp_path, clock="sundial")
    assert "temperature" in wrong(tmp_path, temperature=float("nan"))
    assert "no model" in wrong(tmp_path, model="no/such")
    assert "cuda events" in wrong(tmp_path, clock="cuda")
    assert "real time" in wrong(tmp_path, clock="model", real_time=True)
    assert "threads" in wrong(tmp_path, threads=0)


def test_a_corrupt_model_folder_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model().model.save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    assert "cannot be loaded" in wrong(tmp_path, model=str(folder))
    (folder / "config.json").write_text("{")
    assert "no model" in wrong(tmp_path, model=str(folder))


def test_what_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("models", "paged", "rows"):
        with monkeypatch.context() as patch:
            patch.setattr(f"executor.{module}.free_bytes", lambda device: 1000)
            with pytest.raises(InputError, match="free"):
                tiny(torch.float32) and run_live(asked(tmp_path), model())


def test_videos_need_a_model_that_has_them(tmp_path: Path) -> None:
    shape = {**model().shape.model_dump(), "name": "still", "supports_video": False}
    content = {
        "model": shape,
        "profile": "h200/qwen2-vl-7b",
        "policy": {"kind": "fcfs"},
        "workload": {
            "kind": "synthetic",
            "num_requests": 3,
            "arrivals": {"kind": "at_once"},
            "text_tokens": 5,
            "output_tokens": 3,
            "images": {"count": 1, "modality": "video", "frames": 4, "size": "56x56"},
        },
    }
    with pytest.raises(InputError, match="takes no videos"):
        run_live(Scenario.model_validate(content), model())


def test_kv_blocks_are_no_more_than_the_requests_can_use(tmp_path: Path) -> None:
    rng = random.Random(1)
    requests = random_requests(rng)
    engine = {**tight_engine(rng, requests), "num_kv_blocks": None}
    live: LiveRun = run_live(scenario(requests, engine, "fcfs", tmp_path), model())
    blocks = live.run.scenario.engine.num_kv_blocks
    assert blocks and blocks <= 10_000 and any("num_kv_blocks" in note for note in live.run.notes)


@pytest.mark.parametrize("interval", [1, 16, 1000])
def test_padded_batches_give_the_same_tokens(interval: int, tmp_path: Path) -> None:
    """On a CPU their static buffers run as they are."""
    exact = tiny()
    for policy in NAMES:
        expected = run_live(asked(tmp_path, policy), exact).tokens
        assert run_live(asked(tmp_path, policy), exact, pad_queries=interval).tokens.equals(expected)


def test_out_of_memory_on_a_cpu_is_out_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fails_at(monkeypatch, "encode", RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2)
    live = run_live(asked(tmp_path), model(), clock="wall")
    assert live.run.verdict == "out of memory" and live.run.allocation_failures == 1


def test_a_picture_with_a_huge_header_fails_its_owners_alone(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    content = bytearray((folder / "0.png").read_bytes())
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (folder / "0.png").write_bytes(content)
    live = run_live(asked(tmp_path), model(), images=folder)
    assert set(live.run.requests.status) == {"failed", "finished"}


def test_items_encoded_take_time_and_others_none(tmp_path: Path) -> None:
    table = run_live(asked(tmp_path), model(), clock="wall").run.iterations
    assert ((table.encode > 0) == (table.num_items > 0)).all()


def test_an_interrupt_does_not_wait_for_the_next_arrival() -> None:
    env = RealTime()
    late = env.timeout(60 * 10**9)
    env.sync()
    with pytest.raises(KeyboardInterrupt), between_events(env):
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        env.run()
    assert not late.processed and env.now == 0
