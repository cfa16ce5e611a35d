"""Batches that stay where they are in memory, so that a captured forward can read them: filled and padded anew.

Padding is a token 0 at position 0 whose keys go to slot 0, on the page that nobody reads, in a sequence of kv_len 0.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from executor.assembly import Batch
from executor.paged import Paged
from executor.runner import Runner


class StaticDecode:
    """`size` decodes of at most `max_blocks` blocks each."""

    def __init__(self, runner: Runner, size: int, max_blocks: int) -> None:
        device = runner.kv.keys.device
        paged = _empty_paged(runner, size, size, max_blocks)
        paged.query_starts = torch.arange(size + 1, dtype=torch.int32, device=device)
        self.batch = Batch(
            token_ids=torch.zeros(size, dtype=torch.int64, device=device),
            positions=torch.zeros((3, size), dtype=torch.int64, device=device),
            embed_at=torch.zeros(0, dtype=torch.int64, device=device),
            pieces=[],
            emit=torch.arange(size, device=device),
            owners=[],
            paged=paged,
        )

    def fill(self, batch: Batch) -> None:
        _put(self.batch.token_ids, batch.token_ids)
        _put(self.batch.positions.T, batch.positions.T)
        _put_paged(self.batch.paged, batch.paged)


class StaticMixed:
    """`tokens` packed tokens of fewer than `max_sequences` chunks and decodes; all that is padding is one sequence."""

    def __init__(self, runner: Runner, tokens: int, max_sequences: int, max_blocks: int) -> None:
        kv, hidden = runner.kv.keys, runner.loaded.shape.hidden_size
        self.embeddings = torch.zeros((tokens, hidden), dtype=kv.dtype, device=kv.device)
        self.positions = torch.zeros((3, tokens), dtype=torch.int64, device=kv.device)
        self.paged = _empty_paged(runner, tokens, max_sequences, max_blocks)
        self.paged.num_chunks = max_sequences  # a decode is a chunk of one token

    def narrowed(self, tokens: int) -> StaticMixed:
        """The first so many tokens in the same memory, all of them padding."""
        part, paged = copy(self), self.paged
        part.embeddings, part.positions = self.embeddings[:tokens], self.positions[:, :tokens]
        starts, others = torch.full_like(paged.query_starts, tokens), [0] * (len(paged.kv_lens) - 1)
        starts[0] = 0
        part.paged = replace(paged, slots=paged.slots[:tokens], query_starts=starts, kv_lens=paged.kv_lens.clone())
        part.paged.query_lens, part.paged.host_kv_lens = [tokens, *others], [0, *others]
        return part

    def fill(self, batch: Batch, embeddings: Tensor) -> None:
        _put(self.embeddings, embeddings)
        _put(self.positions.T, batch.positions.T)
        _put_paged(self.paged, batch.paged)
        sequences = len(batch.paged.kv_lens)
        assert sequences < len(self.paged.kv_lens), "one sequence is kept for padding"
        self.paged.query_starts[: sequences + 1] = batch.paged.query_starts
        self.paged.query_starts[sequences + 1 :] = len(self.positions[0])
        if not self.positions.is_cuda:
            self._tell_host(batch)

    def _tell_host(self, batch: Batch) -> None:
        """What the CPU path looks at."""
        tokens, padded = len(batch.token_ids), len(self.positions[0])
        empty = [0] * (len(self.paged.kv_lens) - len(batch.paged.kv_lens))
        self.paged.query_lens = [*batch.paged.query_lens, padded - tokens, *empty[1:]]
        self.paged.host_kv_lens = [*batch.paged.host_kv_lens, *empty]


def _empty_paged(runner: Runner, tokens: int, sequences: int, max_blocks: int) -> Paged:
    device = runner.kv.keys.device
    return Paged(
        keys=runner.kv.keys,
        values=runner.kv.values,
        slots=torch.zeros(tokens, dtype=torch.int64, device=device),
        tables=torch.zeros((sequences, max_blocks), dtype=torch.int32, device=device),
        query_starts=torch.zeros(sequences + 1, dtype=torch.int32, device=device),
        kv_lens=torch.zeros(sequences, dtype=torch.int32, device=device),
    )


def _put_paged(static: Paged, new: Paged) -> None:
    rows, width = new.tables.shape
    _put(static.slots, new.slots)
    _put(static.kv_lens, new.kv_lens)
    static.tables[:rows, :width] = new.tables
    static.tables[:rows, width:] = 0
    static.tables[rows:] = 0


def _put(static: Tensor, new: Tensor) -> None:
    static[: len(new)] = new
    static[len(new) :] = 0
