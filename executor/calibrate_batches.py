"""Runs a shape on the device as a live run would: packed, on pages of its own, with numbers that mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from executor.assembly import Batch
from executor.calibrate_items import entries_of, entry_of, item_of
from executor.calibrate_shapes import Grid, Shape
from executor.clocks import Timer
from executor.paged import Paged
from executor.rows import Piece, RowStorage
from executor.runner import Runner

if TYPE_CHECKING:
    from executor.graphs import Graphs


class Stopwatch:
    """Times shapes. It writes to the padding page and to rows of its own, so a live run beside it notices nothing.

    Keys and values are read from pages all over the pool, each by one sequence while there are enough.
    """

    def __init__(self, runner: Runner, timer: Timer, graphs: Graphs | None = None, seed: int = 0) -> None:
        self.runner = runner
        self._timer = timer
        self._graphs = graphs
        self._rng = np.random.default_rng(seed)
        loaded = runner.loaded
        self._generator = torch.Generator(loaded.device).manual_seed(seed)
        self._rows = RowStorage(None, loaded.shape.hidden_size * (1 + loaded.shape.num_deepstack), loaded.device,
                                loaded.dtype)  # fmt: skip

    def time(self, shape: Shape) -> int:
        """Nanoseconds of one iteration, its assembly left out."""
        if shape.items:
            return self._time_encoder(shape.items)
        batch = self._batch(shape)
        if shape.before:
            self._time_encoder(shape.before)
        return self._time_forward(batch)

    def _time_encoder(self, grids: tuple[Grid, ...]) -> int:
        items = [item_of(grid) for grid in grids]
        patches = self._patches(grids)
        entries = entries_of(items)
        with self._own_rows():
            start = self._timer.mark()
            self.runner.encode(patches, items, entries)
            return self._timer.between(start, self._timer.mark())

    @torch.inference_mode()
    def _time_forward(self, batch: Batch) -> int:
        with self._own_rows():
            start = self._timer.mark()
            logits = self._graphs.run(batch) if self._graphs is not None else None
            if logits is None:
                logits = self.runner.forward(batch)
            logits.argmax(-1)
            return self._timer.between(start, self._timer.mark())

    @contextmanager
    def _own_rows(self) -> Iterator[None]:
        theirs, self.runner.storage = self.runner.storage, self._rows
        try:
            yield
        finally:
            self.runner.storage = theirs

    def _patches(self, grids: tuple[Grid, ...]) -> list[Tensor]:
        """Pixels are random: multiplying zeros takes less power, and a GPU then runs faster."""
        loaded, vision = self.runner.loaded, self.runner.loaded.config.vision_config
        width, drawn = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2, {}
        for grid in dict.fromkeys(grids):
            size = (prod(grid), width)
            pixels = torch.randn(size, generator=self._generator, device=loaded.device, dtype=torch.float32)
            drawn[grid] = pixels.to(loaded.dtype)
        return [drawn[grid] for grid in grids]

    def _batch(self, shape: Shape) -> Batch:
        """Every sequence gives a token."""
        device, lengths = self.runner.kv.keys.device, [tokens for tokens, _ in shape.chunks] + [1] * len(shape.contexts)
        low, high = self.runner.loaded.ordinary_tokens
        positions = np.concatenate(
            [np.arange(total - length, total) for length, total in zip(lengths, shape.totals, strict=True)]
        )
        starts = np.cumsum([0, *lengths])
        pieces = self._pieces(shape.rows)
        return Batch(
            token_ids=torch.from_numpy(self._rng.integers(low, high, len(positions))).to(device),
            positions=torch.from_numpy(np.broadcast_to(positions, (3, len(positions))).copy()).to(device),
            embed_at=torch.arange(shape.rows, device=device),
            pieces=pieces,
            emit=torch.from_numpy(starts[1:] - 1).to(device),
            owners=[],
            paged=self._paged(shape, lengths, positions, starts),
        )

    def _pieces(self, num_rows: int) -> list[Piece]:
        """Rows to be read, there for sure."""
        if not num_rows:
            return []
        entry = entry_of(0, 0, num_rows)
        if len(self._rows.rows) < num_rows:
            self._rows.write(entry, self._rows.rows.new_zeros((num_rows, self._rows.rows.shape[1])))
        return [(entry, 0, num_rows)]

    def _paged(self, shape: Shape, lengths: list[int], positions: np.ndarray, starts: np.ndarray) -> Paged:
        kv, device = self.runner.kv, self.runner.kv.keys.device
        return Paged(
            keys=kv.keys,
            values=kv.values,
            slots=torch.from_numpy(positions % kv.block_size).to(device),  # on page 0
            tables=torch.from_numpy(self._tables(shape.totals)).to(device),
            query_starts=torch.from_numpy(starts.astype(np.int32)).to(device),
            kv_lens=torch.tensor(shape.totals, dtype=torch.int32, device=device),
            query_lens=lengths,
            host_kv_lens=shape.totals,
            num_chunks=len(shape.chunks),
        )

    def _tables(self, totals: list[int]) -> np.ndarray:
        """[sequences, most blocks]: pages in random order, again from the start where there are too few."""
        blocks = [-(-total // self.runner.kv.block_size) for total in totals]
        pages = self._rng.permutation(np.arange(1, self.runner.kv.keys.shape[1], dtype=np.int32))
        taken = np.resize(pages, sum(blocks))
        tables = np.zeros((len(blocks), max(blocks)), np.int32)
        for row, count, end in zip(tables, blocks, np.cumsum(blocks), strict=True):
            row[:count] = taken[end - count : end]
        return tables
