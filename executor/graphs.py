"""CUDA graphs of a run: decodes in buckets of powers of two, and mixed batches padded to an interval of tokens.

On CPU the same static buffers run as they are, so that padding can be tested against batches without it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from executor.assembly import Batch
from executor.capture import Forward, GraphMemory, buckets, intervals
from executor.messages import first_line
from executor.options import Options
from executor.paged import Paged
from executor.runner import Runner
from executor.static_batches import StaticDecode, StaticMixed
from policies.limits import Limits


class DecodeGraphs:
    """Batches of decodes alone: 1, 2, 4, ... and `max_batch` of them, contexts of up to `max_blocks` blocks."""

    def __init__(self, runner: Runner, max_batch: int, max_blocks: int, memory: GraphMemory | None = None) -> None:
        self._runner = runner
        self._memory = memory
        self._max_blocks = max_blocks
        self.batches = {size: StaticDecode(runner, size, max_blocks) for size in buckets(max_batch)}
        self.replays: dict[int, Forward] = {}  # the sizes that can be run
        self._logits: Tensor | None = None  # [max_batch, vocabulary] of whichever ran last, outside of the pool

    @torch.inference_mode()
    def warm_up(self) -> list[str]:
        """Capture all buckets, largest first, and say which could not be."""
        return _capture_all(self, list(self.batches), self._memory, "decodes")

    def forward(self, size: int) -> None:
        batch = self.batches[size].batch
        _forget(batch.paged)
        logits = self._runner.forward(batch)
        if self._logits is None:
            self._logits = torch.empty_like(logits)  # the largest comes first
        self._logits[:size] = logits

    @torch.inference_mode()
    def run(self, batch: Batch) -> Tensor | None:
        """Logits [n, vocabulary], good until the next run; None for a batch that no graph is for."""
        size = _fitting(self.replays, len(batch.token_ids))
        if size is None or batch.paged.num_chunks or batch.paged.tables.shape[1] > self._max_blocks:
            return None
        self.batches[size].fill(batch)
        self.replays[size]()
        assert self._logits is not None
        return self._logits[: len(batch.token_ids)]


class MixedGraphs:
    """Chunks with or without decodes, padded to a multiple of `interval` tokens (0: all to `max_tokens`).

    All are one varlen launch, so that a graph depends on the number of tokens alone: of how many sequences they are
    and how much of those is cached is data in its buffers, and needs no padding of its own. Logits, of the few rows
    that give a token, are computed outside.
    """

    def __init__(
        self, runner: Runner, max_tokens: int, max_sequences: int, max_blocks: int, interval: int,
        memory: GraphMemory | None = None,
    ) -> None:  # fmt: skip
        self._runner = runner
        self._memory = memory
        self._max_blocks = max_blocks
        largest = StaticMixed(runner, max_tokens, max_sequences + 1, max_blocks)
        self.batches = {size: largest.narrowed(size) for size in intervals(interval, max_tokens)}
        self.replays: dict[int, Forward] = {}
        self._hidden = torch.empty_like(largest.embeddings)

    @torch.inference_mode()
    def warm_up(self) -> list[str]:
        """Capture all sizes, largest first, and say which could not be."""
        return _capture_all(self, list(self.batches), self._memory, "tokens")

    def forward(self, size: int) -> None:
        static = self.batches[size]
        _forget(static.paged)
        self._hidden[:size] = self._runner.hidden(static.embeddings, static.positions, static.paged)

    @torch.inference_mode()
    def run(self, batch: Batch) -> Tensor | None:
        """Logits [E, vocabulary]; None for a batch that no graph is for."""
        size = _fitting(self.replays, len(batch.token_ids))
        if size is None or not batch.paged.num_chunks or batch.paged.tables.shape[1] > self._max_blocks:
            return None
        self.batches[size].fill(batch, self._runner.embeddings(batch))
        self.replays[size]()
        return self._runner.logits(self._hidden[batch.emit])


class Graphs:
    """All graphs that a run's options ask for."""

    def __init__(self, runner: Runner, limits: Limits, options: Options, max_blocks: int) -> None:
        """`max_blocks`: of the longest request."""
        device = runner.kv.keys.device
        memory = GraphMemory(device) if device.type == "cuda" else None
        tokens, sequences = limits.max_num_batched_tokens, limits.max_num_seqs
        self._kinds: list[DecodeGraphs | MixedGraphs] = []
        if options.pad_queries:
            self._kinds.append(MixedGraphs(runner, tokens, sequences, max_blocks, options.pad_queries, memory))
        self._kinds.append(DecodeGraphs(runner, min(sequences, tokens), max_blocks, memory))
        if memory is not None and options.encoder_in_graph_pool:
            runner.encoder_pool = memory.pool

    def warm_up(self) -> list[str]:
        """Capture everything, mixed batches first since they need most; the warnings of what was not."""
        return [warning for kind in self._kinds for warning in kind.warm_up()]

    def run(self, batch: Batch) -> Tensor | None:
        """Logits of the rows that give a token, good until the next run; None for a batch that no graph is for."""
        results = (kind.run(batch) for kind in self._kinds)
        return next((logits for logits in results if logits is not None), None)


class _Capturable(Protocol):
    replays: dict[int, Forward]

    def forward(self, size: int) -> None: ...


def _capture_all(graphs: _Capturable, sizes: list[int], memory: GraphMemory | None, what: str) -> list[str]:
    warnings = []
    for size in sizes:
        try:
            graphs.replays[size] = _captured(graphs, size, memory)
        except RuntimeError as error:  # out of memory is one too
            warnings.append(f"no CUDA graph for {size} {what}, which run slower without: {first_line(error)}")
    return warnings


def _captured(graphs: _Capturable, size: int, memory: GraphMemory | None) -> Forward:
    def forward() -> None:
        graphs.forward(size)

    forward()  # on CPU too: it shows that the buffers fit
    return forward if memory is None else memory.capture(forward)


def _fitting(replays: dict[int, Forward], size: int) -> int | None:
    return min((candidate for candidate in replays if candidate >= size), default=None)


def _forget(paged: Paged) -> None:
    """What attention prepares is prepared anew, within the graph: in its pool, and from what the buffers hold then."""
    paged.kernel = paged.mask = None
