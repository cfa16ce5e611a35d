"""KV blocks of a GPU from what the largest iterations leave; the memory is made up here, the iterations are run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import executor.kv_size
from executor.kv_size import Memory, many_items, measured_room
from executor.options import Options
from executor.warmup import encode_boundary
from sim import Scenario
from sim.world import resolve
from tests.live_loads import tiny
from workloads.errors import InputError

SCENARIO = "scenarios/tiny_live.yaml"
BLOCK_BYTES = 16 * 2 * 2 * 2 * 16 * 4  # tokens * (keys and values) * layers * kv heads * head size * float32


class MadeUp(Memory):
    """So many bytes free, so many at the peak."""

    def __init__(self, free: int, peak: int) -> None:
        self.figures = (free, peak)
        self.starts = 0

    def start(self) -> int:
        self.starts += 1
        return self.figures[0]

    def peak(self) -> int:
        return self.figures[1]


def room(memory: MadeUp, set: dict[str, Any] | None = None, **options: Any) -> executor.kv_size.Room:
    asked = Scenario.load(SCENARIO, {"engine.num_kv_blocks": None} | (set or {}))
    return measured_room(asked, tiny(torch.float32), Options(device="cpu", **options), 12, memory)


def test_the_fraction_of_what_the_peak_leaves() -> None:
    memory = MadeUp(1000 * BLOCK_BYTES, 200 * BLOCK_BYTES)
    blocks, note = room(memory)
    assert blocks == 720  # 0.9 * 800
    assert note.startswith("0.9 of the 6.2 MiB that cpu has left beside weights and 1.6 MiB for")
    assert memory.starts == 2, "what the trial took is given back"
    assert room(memory, {"engine.free_gpu_memory_fraction": 0.5}).blocks == 400


def test_rows_that_no_tensor_holds_yet_are_left_room_for() -> None:
    """256 rows of 64 float32 take eight blocks' bytes."""
    memory = MadeUp(1000 * BLOCK_BYTES, 200 * BLOCK_BYTES)
    assert 8 * BLOCK_BYTES == 256 * 64 * 4
    assert room(memory, {"engine.free_gpu_memory_fraction": 1}, encoder_storage="per_item").blocks == 792


def test_no_room_is_one_line() -> None:
    with pytest.raises(InputError, match="no memory left for KV blocks on cpu: the largest iteration takes"):
        room(MadeUp(100 * BLOCK_BYTES, 100 * BLOCK_BYTES))


def test_an_iteration_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(executor.kv_size, "encode_items", exhausted)
    with pytest.raises(InputError, match="the largest iteration does not fit cpu beside the weights: lower max_num"):
        room(MadeUp(10**9, 0))


def test_the_other_boundary_batch_is_as_many_items_as_may_be() -> None:
    checked = resolve(Scenario.load(SCENARIO, {"engine.encoder_max_num_items": 10})).scenario
    batch = many_items(checked.engine, checked.model)
    assert batch is not None
    item, count = batch
    assert (item.grid, count) == ((1, 8, 8), 10)  # 768 tokens: ten of 76.8, in whole patches of a merger
    assert item.encoder_tokens == 64
    one = resolve(Scenario.load(SCENARIO, {"engine.encoder_max_num_items": 1})).scenario
    assert many_items(one.engine, one.model) is None


@pytest.mark.parametrize(
    ("policy", "items", "count"), [("head_of_line", 8, 3), ("head_of_line", 2, 2), ("unbudgeted", 8, 1)]
)
def test_the_largest_items_as_budgets_let_through(
    policy: str, items: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """768 tokens hold three of 256; without budgets nobody profiled the encoder."""
    asked = Scenario.load(SCENARIO, {"policy.kind": policy, "engine.encoder_max_num_items": items})
    checked, counts = resolve(asked).scenario, []
    largest = checked.workload.largest_item(seed=1, model=checked.model)
    assert largest is not None
    monkeypatch.setattr("executor.warmup.encode_items", lambda runner, item, number: counts.append(number))
    encode_boundary(None, checked.engine, largest)  # type: ignore[arg-type]  # nothing runs
    assert counts == [count]
