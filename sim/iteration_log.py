"""One row for every iteration, kept small: a run of decode iterations is written once and unrolled in bulk."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome

Ints = NDArray[np.int64]
COLUMNS = (
    "num_items",
    "encoder_tokens",
    "num_prefill_tokens",
    "num_decodes",
    "context_tokens",
    "kv_blocks_used",
    "encoder_rows_held",
    "encoder_rows_resident",
    "num_running",
    "num_waiting",
)
FLUSH = 16384  # entries unrolled at a time


class IterationLog:
    """Times are integer nanoseconds in here and become seconds in the table."""

    def __init__(self, keep: bool = True) -> None:
        """Without `keep`, only the times of decode steps are remembered, which the ITL needs."""
        self.keep = keep
        self.decode_steps = 0  # steps of the decode cohort so far
        self.num_iterations = 0
        self._entries: list[tuple[int, ...]] = []
        self._runs: list[NDArray[Any]] = []  # compute times of the entries that are runs
        self._growth: list[tuple[int, int, int]] = []  # (entry, iteration of its run, KV blocks taken)
        self._chunks: list[dict[str, Any]] = []
        self._step_ends: list[Ints] = []
        self._step_counts: list[Ints] = []

    def add(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """One iteration, or a run of them, as it stands after `begin`."""
        cache, run = state.cache, outcome.run
        if run is None:
            count = 1
        else:
            count = len(run)
            self._runs.append(run)
        self.num_iterations += count
        num_decodes = plan.num_decodes
        if num_decodes:
            self.decode_steps += count
        entries = self._entries
        if len(entries) == FLUSH:
            self._flush()
        entries.append(
            (
                count,
                start,
                outcome.encode,
                outcome.compute,
                outcome.host,
                len(plan.encode),
                plan.encoder_tokens,
                plan.num_prefill_tokens,
                num_decodes,
                plan.context_tokens,
                state.pool.num_blocks - len(state.pool.free),
                cache.held_rows,
                cache.held_rows - cache.pending_rows + cache.released_rows,
                len(state.contexts) + len(state.decodes.members),
                len(state.waiting),
            )
        )

    def grow(self, growth: list[tuple[int, int]]) -> None:
        """KV blocks taken within the run that was added last."""
        entry = len(self._entries) - 1
        self._growth += [(entry, offset, blocks) for offset, blocks in growth]

    def _flush(self) -> None:
        """Unroll the entries into columns."""
        if not self._entries:
            return
        table = np.array(self._entries, dtype=np.int64).T
        counts = table[0]
        firsts = np.cumsum(counts) - counts  # row of each entry's first iteration
        compute = np.repeat(table[3], counts)
        if self._runs:
            in_run = np.repeat(counts > 1, counts)
            compute[in_run] = np.concatenate([run for run in self._runs if len(run) > 1] or [np.zeros(0)])
        offset = np.arange(len(compute)) - np.repeat(firsts, counts)  # iteration within its run
        encode, host = np.repeat(table[2], counts), np.repeat(table[4], counts)
        ends = _ends(table[1], counts, firsts, compute + encode + host)
        decodes = np.repeat(table[8], counts)
        self._step_ends.append(ends[decodes > 0])
        self._step_counts.append(decodes[decodes > 0].astype(np.int32))
        if self.keep:
            self._keep(table, counts, firsts, offset, decodes, (ends, encode, compute, host))
        self._entries.clear()
        self._runs.clear()
        self._growth.clear()

    def _keep(
        self, table: Ints, counts: Ints, firsts: Ints, offset: Ints, decodes: Ints, times: tuple[Ints, Ints, Ints, Ints]
    ) -> None:
        ends, encode, compute, host = times
        chunk: dict[str, Any] = {
            "start": ends - (encode + compute + host),
            "end": ends,
            "encode": encode,
            "compute": compute,
            "host": host,
        }
        for name, values in zip(COLUMNS, table[5:], strict=True):
            chunk[name] = np.repeat(values.astype(np.int32) if name != "context_tokens" else values, counts)
        chunk["context_tokens"] += decodes * offset
        if self._growth:
            entry, iteration, blocks = np.array(self._growth, dtype=np.int64).T
            taken = np.zeros(len(offset) + 1, dtype=np.int32)
            np.add.at(taken, firsts[entry] + iteration, blocks.astype(np.int32))
            grown = np.cumsum(taken[:-1], dtype=np.int32)
            chunk["kv_blocks_used"] += grown - np.repeat(grown[firsts], counts)
        self._chunks.append(chunk)

    def decode_log(self) -> tuple[Ints, Ints]:
        """(end in ns, number of decodes) of every step of the cohort."""
        self._flush()
        if not self._step_ends:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(self._step_ends), np.concatenate(self._step_counts)

    def tables(self) -> "list[pd.DataFrame]":
        """The iterations in order, in pieces; empty where they are not kept."""
        self._flush()
        pieces, first = [], 0
        for chunk in self._chunks:
            size = len(chunk["end"])
            numbers = np.arange(first, first + size)
            first += size
            times = {name: chunk[name] / 1e9 for name in ("start", "end", "encode", "compute", "host")}
            counted = {name: chunk[name] for name in COLUMNS}
            pieces.append(pd.DataFrame({"iteration": numbers, **times, **counted}))
        return pieces


def _ends(starts: Ints, counts: Ints, firsts: Ints, elapsed: Ints) -> Ints:
    """When each iteration ended: those of a run follow each other from its start."""
    total = np.cumsum(elapsed)
    before = total[firsts] - elapsed[firsts]  # all that elapsed before each entry
    ends: Ints = total + np.repeat(starts - before, counts)
    return ends
