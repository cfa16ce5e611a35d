"""Nine ways to get paged multimodal decoding wrong; the exactness test must notice each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_exactness import assert_exact, load, model, reference
from torch import Tensor

import executor.attention
import executor.prompts
from executor.assembly import Batch
from executor.paged import Paged
from executor.positions import Positions, prompt_positions
from executor.rows import Piece, RowStorage
from executor.runner import Runner
from workloads.request import Request

TRIES = range(12)  # workloads in which a bug may show
Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[plant.__name__] = plant
    return plant


def _positions(patch: Patch, wrong: Callable[[Positions, int], tuple[Positions, int]]) -> None:
    def positions(request: Request, merge_size: int) -> tuple[Positions, int]:
        return wrong(*prompt_positions(request, merge_size))

    patch.setattr(executor.prompts, "prompt_positions", positions)


@bug
def decode_positions_without_delta(patch: Patch) -> None:
    _positions(patch, lambda positions, delta: (positions, 0))


@bug
def one_dimensional_positions(patch: Patch) -> None:
    _positions(patch, lambda positions, delta: (np.broadcast_to(np.arange(positions.shape[1]), positions.shape), 0))


@bug
def height_and_width_swapped(patch: Patch) -> None:
    _positions(patch, lambda positions, delta: (positions[[0, 2, 1]], delta))


@bug
def embeddings_shifted_by_a_row(patch: Patch) -> None:
    read = RowStorage.read
    patch.setattr(RowStorage, "read", lambda self, pieces: read(self, pieces).roll(1, 0))


@bug
def no_image_embeddings(patch: Patch) -> None:
    def embeddings(self: Runner, batch: Batch) -> Tensor:
        found: Tensor = self._language_model.embed_tokens(batch.token_ids)
        return found

    patch.setattr(Runner, "embeddings", embeddings)


@bug
def images_attend_to_each_other(patch: Patch) -> None:
    visual = model().model.model.visual
    forward = visual.forward

    def packed(patches: Tensor, *, cu_seqlens: Tensor, max_seqlen: int, **more: Any) -> Any:
        return forward(patches, cu_seqlens=cu_seqlens[[0, -1]], max_seqlen=len(patches), **more)

    patch.setattr(visual, "forward", packed)


@bug
def causal_mask_aligned_at_the_top_left(patch: Patch) -> None:
    def mask(n: int, size: int, device: torch.device) -> Tensor:
        return torch.ones(n, size, dtype=torch.bool, device=device).tril()

    patch.setattr(executor.attention, "causal_mask", mask)


@bug
def wrong_slot_in_the_last_page(patch: Patch) -> None:
    write = Paged.write

    def wrong(self: Paged, layer: int, keys: Tensor, values: Tensor) -> None:
        size = self.keys.shape[2]
        correct, self.slots = self.slots, torch.where(self.slots % size == 1, self.slots - 1, self.slots)
        write(self, layer, keys, values)
        self.slots = correct

    patch.setattr(Paged, "write", wrong)


@bug
def rows_freed_too_early(patch: Patch) -> None:
    read = RowStorage.read

    def once(self: RowStorage, pieces: list[Piece]) -> Tensor:
        found = read(self, pieces)
        for entry, _, _ in pieces:  # as if others had been given the rows when the first chunk had read some of them
            self.rows[torch.from_numpy(entry.rows)] = 1.0
        return found

    patch.setattr(RowStorage, "read", once)


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(name: str, monkeypatch: Patch, tmp_path: Path) -> None:
    reference()  # made while everything is right
    caught = 0
    for seed in TRIES:
        with monkeypatch.context() as patch:
            BUGS[name](patch)
            requests, run = load(seed, tmp_path)
        try:
            assert_exact(requests, run)
        except AssertionError:
            caught += 1
    assert caught > 0


def test_there_are_nine() -> None:
    assert len(BUGS) == 9


def test_without_a_bug_nothing_is_caught(tmp_path: Path) -> None:
    for seed in TRIES:
        assert_exact(*load(seed, tmp_path))
