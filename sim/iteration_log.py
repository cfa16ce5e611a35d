"""One row for every iteration, kept small: a run of decode iterations is one entry, unrolled when it is asked for."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome
from sim.decode_run import QUANTUM, SHIFT, DecodeRun
from sim.engine_use import EngineUse
from sim.iteration_pieces import COLUMNS, FIELDS, RUN, SHORT, Blur, Columns, Ints, Piece
from sim.ledger import FULL, Ledger

ENTRIES = 4096  # read at a time
PIECE = 32768  # iterations unrolled at a time: few enough pieces that what each costs does not matter


class IterationLog:
    """Times are integer nanoseconds in the log and seconds in the table."""

    def __init__(self, keep: bool = True) -> None:
        """Without `keep` only what the ITL needs is remembered, and the table is empty."""
        self.keep = keep
        self.blur: Blur | None = None  # what iterations of a run come to, where that is drawn
        self.decode_steps = 0  # steps of the decode cohort so far
        self.num_iterations = 0
        self._num_entries = 0
        self._steps: tuple[Ints, NDArray[np.int32]] | None = None  # once they were asked for
        self._pieces: list[Piece] = []
        self._pieces_of = -1  # the number of iterations that they unroll
        self._entries = Ledger(self._width)  # FIELDS of each entry
        self._runs = Ledger(RUN)  # of each entry that is a run

    @property
    def _width(self) -> int:
        return len(FIELDS) if self.keep else SHORT

    def add(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """One iteration, or a run of them, as it stands after `begin`."""
        num_decodes, cache, pool = plan.num_decodes, state.cache, state.pool
        host, encode, _, total, run, _, _ = outcome
        count = 1
        if run is not None:
            count, total = self._add_run(run)
        self.num_iterations += count
        self._num_entries += 1
        if num_decodes:
            self.decode_steps += count
        entries = self._entries
        if len(entries.page) >= FULL:
            entries.turn_page()
        if not self.keep:
            alone = not (plan.encode or plan.prefill)
            entries.page += entries.pack(count, start, total, num_decodes, plan.context_tokens if alone else 0)
            return
        held, used = cache.held_rows, pool.num_blocks - pool.num_free
        resident = held - cache.pending_rows + cache.released_rows
        active = len(state.contexts) + len(state.decodes.members)
        entries.page += entries.pack(
            count,
            start,
            total,
            num_decodes,
            plan.context_tokens,
            encode,
            host,
            len(plan.encode),
            plan.encoder_tokens,
            plan.num_prefill_tokens,
            used,
            held,
            resident,
            active,
            len(state.waiting),
        )

    def add_decodes(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """The same, where all that is active decodes and nobody waits: most iterations, so it is kept short."""
        num_decodes, cache, pool = plan.num_decodes, state.cache, state.pool
        host, _, _, total, run, _, _ = outcome
        count = 1
        if run is not None:
            count, total = self._add_run(run)
        self.num_iterations += count
        self._num_entries += 1
        self.decode_steps += count
        entries = self._entries
        if len(entries.page) >= FULL:
            entries.turn_page()
        if not self.keep:
            entries.page += entries.pack(count, start, total, num_decodes, plan.context_tokens)
            return
        held, used = cache.held_rows, pool.num_blocks - pool.num_free
        tokens, resident = plan.context_tokens, held - cache.pending_rows + cache.released_rows
        entries.page += entries.pack(
            count, start, total, num_decodes, tokens, 0, host, 0, 0, 0, used, held, resident, num_decodes, 0
        )

    def _add_run(self, run: DecodeRun) -> tuple[int, int]:
        """How many iterations it was, and the whole nanoseconds of the first."""
        count, first, slope, rest = run
        if count == 1:
            return 1, rest + first >> SHIFT
        runs = self._runs
        runs.page += runs.pack(first % QUANTUM, slope, rest)
        if len(runs.page) >= FULL:
            runs.turn_page()
        return count, first >> SHIFT

    def decode_log(self) -> tuple[Ints, NDArray[np.int32]]:
        """(end in ns, number of decodes) of every step of the cohort."""
        if self._steps is None or len(self._steps[0]) != self.decode_steps:
            self._steps = self._read_steps()
            if not self.keep:  # nothing else is ever asked for, and long runs are why no table is kept
                self._entries, self._runs, self._num_entries = Ledger(self._width), Ledger(RUN), 0
        return self._steps

    def _read_steps(self) -> tuple[Ints, NDArray[np.int32]]:
        ends, counts = np.empty(self.decode_steps, np.int64), np.empty(self.decode_steps, np.int32)
        done = 0
        for piece in self._unrolled():
            steps = slice(done, done + piece.num_steps)
            ends[steps], counts[steps] = piece.decode_steps()
            done += piece.num_steps
        return ends, counts

    def pieces(self, taken: Ints, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
        """The table, or some of its columns, in order and piece by piece; nothing where it is not kept.

        `taken` are the KV blocks that decodes have taken by the end of each of their steps (`RequestLog.blocks_taken`).
        """
        if self.keep:
            for piece in self._unrolled():
                yield piece.columns(names, taken)

    def use(self, taken: Ints, start: float) -> EngineUse:
        """Of the iterations that end after `start` (s)."""
        return EngineUse.of_all(piece.use(taken, start) for piece in self._unrolled())

    def decodes_alone(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Entries of nothing but decodes: how many iterations each, their decodes, the first one's summed context."""
        for table in self._tables():
            counts, _, _, decodes, contexts, *more = table
            alone = (decodes > 0) & (contexts > 0)
            if more:
                entry = dict(zip(FIELDS[SHORT:], more, strict=True))
                alone &= (entry["num_items"] == 0) & (entry["num_prefill_tokens"] == 0)
            yield counts[alone], decodes[alone], contexts[alone]

    def _unrolled(self) -> Iterable[Piece]:
        """Kept once they are made, as every column is made from them; not where there is no table."""
        if self.keep and self._pieces_of != self.num_iterations:
            self._pieces, self._pieces_of = list(self._unroll()), self.num_iterations
        return self._pieces if self.keep else self._unroll()

    def _unroll(self) -> Iterator[Piece]:
        runs, iteration, step = self._runs.reader(), 0, 0
        for table in self._tables():
            piece = Piece(table, iteration, step, runs, self.blur)
            iteration += len(piece.ends)
            step += piece.num_steps
            yield piece

    def _tables(self) -> Iterator[Ints]:
        """Fields of the entries, as many together as make about PIECE iterations."""
        width, entries = self._width, self._entries.reader()
        for first in range(0, self._num_entries, ENTRIES):
            size = min(ENTRIES, self._num_entries - first)
            table = entries.take(size * width).reshape(size, width).T
            cuts = np.flatnonzero(np.diff(np.cumsum(table[0]) // PIECE)) + 1
            yield from np.split(table, cuts, axis=1)
