"""One row for every iteration, kept small: a run of decode iterations is written once and unrolled in bulk."""

from collections.abc import Sequence
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
TIMES = ("start", "end", "encode", "compute", "host")
FLUSH = 16384  # entries unrolled at a time


class IterationLog:
    """Times are integer nanoseconds in here and become seconds in the table."""

    def __init__(self, keep: bool = True) -> None:
        """Without `keep`, only the times of decode steps are remembered, which the ITL needs."""
        self.keep = keep
        self.decode_steps = 0  # steps of the decode cohort so far
        self.num_iterations = 0
        self._entries: list[tuple[int, ...]] = []
        self._runs: list[NDArray[Any]] = []  # whole times of the iterations of the entries that are runs
        self._growth: list[int] = []  # for each KV block that a run took, the iteration since the last flush
        self._flushed = 0  # iterations before that
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

    def grow(self, growth: Sequence[int], count: int) -> None:
        """KV blocks taken within the run of `count` iterations that was added last, by iteration of the run."""
        first = self.num_iterations - self._flushed - count
        self._growth += [first + offset for offset in growth]

    def _flush(self) -> None:
        """Unroll the entries into columns: `entry` is the one that each iteration belongs to."""
        if not self._entries:
            return
        table = np.array(self._entries, dtype=np.int64).T.copy()
        counts = table[0]
        firsts = np.cumsum(counts) - counts  # iteration at which each entry begins
        entry = _entries(firsts, int(counts.sum()))
        totals = self._totals(table, counts, entry)
        ends = np.cumsum(totals)
        ends += (table[1] - (ends[firsts] - totals[firsts]))[entry]
        decodes = table[8].astype(np.int32)[entry]
        steps = decodes > 0
        self._step_ends.append(ends[steps])
        self._step_counts.append(decodes[steps])
        if self.keep:
            self._keep(table, firsts, entry, ends, totals, decodes)
        self._flushed = self.num_iterations
        self._entries.clear()
        self._runs.clear()
        self._growth.clear()

    def _totals(self, table: Ints, counts: Ints, entry: Ints) -> Ints:
        totals = (table[2] + table[3] + table[4])[entry]
        if self._runs:
            in_run = (counts > 1)[entry]
            totals[in_run] = np.concatenate([run for run in self._runs if len(run) > 1] or [np.zeros(0)])
        return totals

    def _keep(self, table: Ints, firsts: Ints, entry: Ints, ends: Ints, totals: Ints, decodes: Ints) -> None:
        encode, host = table[2][entry], table[4][entry]
        chunk = {"start": ends - totals, "end": ends, "encode": encode, "compute": totals - encode - host, "host": host}
        for name, values in zip(COLUMNS, table[5:].astype(np.int32), strict=True):
            chunk[name] = values[entry]
        chunk["context_tokens"] = table[9][entry] + decodes * (np.arange(len(entry)) - firsts[entry])
        if self._growth:
            grown = np.cumsum(np.bincount(self._growth, minlength=len(entry)))
            chunk["kv_blocks_used"] += (grown - grown[firsts][entry]).astype(np.int32)
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
            times = {name: chunk[name] / 1e9 for name in TIMES}
            counted = {name: chunk[name] for name in COLUMNS}
            pieces.append(pd.DataFrame({"iteration": numbers, **times, **counted}))
        return pieces or [pd.DataFrame({name: [] for name in ("iteration", *TIMES, *COLUMNS)})]


def _entries(firsts: Ints, size: int) -> Ints:
    """For each iteration the entry it belongs to (as `numpy.repeat`, at a fifth of its time)."""
    entry = np.zeros(size, dtype=np.int64)
    entry[firsts[1:]] = 1
    np.cumsum(entry, out=entry)
    return entry
