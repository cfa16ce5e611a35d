"""One row for every iteration, kept small: a run of decode iterations is one entry, unrolled when it is asked for."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome
from sim.decode_run import QUANTUM, SHIFT
from sim.engine_use import EngineUse
from sim.iteration_pieces import COLUMNS, FIELDS, SHORT, Blur, Columns, Ints, Piece
from sim.ledger import Ledger

PIECE = 65536  # iterations unrolled at a time: few enough pieces that what each costs does not matter


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
        self._entries = Ledger()  # FIELDS of each entry, flat
        self._runs = Ledger()  # RUN of each entry that is a run, flat

    def add(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """One iteration, or a run of them, as it stands after `begin`."""
        num_decodes, context = plan.num_decodes, plan.context_tokens
        count, total = self._count(outcome, num_decodes)
        if not self.keep:
            alone = not (plan.encode or plan.prefill)
            self._entries.extend([count, start, total, num_decodes, context if alone else 0])
            return
        cache, pool = state.cache, state.pool
        held, used = cache.held_rows, pool.num_blocks - pool.num_free
        resident = held - cache.pending_rows + cache.released_rows
        work = (len(plan.encode), plan.encoder_tokens, plan.num_prefill_tokens)
        kept = (used, held, resident, len(state.contexts) + len(state.decodes.members), len(state.waiting))
        self._entries.extend([count, start, total, num_decodes, context, outcome.encode, outcome.host, *work, *kept])

    def add_decodes(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """The same, where all that is active decodes and nobody waits: most iterations, so it is kept short."""
        num_decodes, cache, pool = plan.num_decodes, state.cache, state.pool
        count, total = self._count(outcome, num_decodes)
        if not self.keep:
            self._entries.extend([count, start, total, num_decodes, plan.context_tokens])
            return
        held, used = cache.held_rows, pool.num_blocks - pool.num_free
        tokens, resident = plan.context_tokens, held - cache.pending_rows + cache.released_rows
        self._entries.extend(
            [count, start, total, num_decodes, tokens, 0, outcome.host, 0, 0, 0, used, held, resident, num_decodes, 0]
        )

    def _count(self, outcome: Outcome, num_decodes: int) -> tuple[int, int]:
        """How many iterations it was, and the whole time of the first."""
        count, total, run = 1, outcome.total, outcome.run
        if run is not None and run.num_iterations > 1:
            count, first, slope = run
            total = first >> SHIFT
            self._runs.extend([first % QUANTUM, slope])
        self.num_iterations += count
        self._num_entries += 1
        if num_decodes:
            self.decode_steps += count
        return count, total

    def decode_log(self) -> tuple[Ints, NDArray[np.int32]]:
        """(end in ns, number of decodes) of every step of the cohort."""
        if self._steps is None or len(self._steps[0]) != self.decode_steps:
            self._steps = self._read_steps()
            if not self.keep:  # nothing else is ever asked for, and long runs are why no table is kept
                self._entries, self._runs, self._num_entries = Ledger(), Ledger(), 0
        return self._steps

    def _read_steps(self) -> tuple[Ints, NDArray[np.int32]]:
        ends, counts = np.empty(self.decode_steps, np.int64), np.empty(self.decode_steps, np.int32)
        done = 0
        for piece in self._unrolled():
            step = piece.decodes > 0
            size = int(step.sum())
            ends[done : done + size] = piece.ends[step]
            counts[done : done + size] = piece.decodes[step]
            done += size
        return ends, counts

    def pieces(self, crossings: Ints, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
        """The table, or some of its columns, in order and piece by piece; nothing where it is not kept.

        `crossings` are the KV blocks that decodes took at each of their steps.
        """
        if self.keep:
            taken = _taken(crossings)
            for piece in self._unrolled():
                yield {name: piece.column(name, taken) for name in names}

    def use(self, crossings: Ints, start: float) -> EngineUse:
        """Of the iterations that end after `start` (s)."""
        taken = _taken(crossings)
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
        width = len(FIELDS) if self.keep else SHORT
        entries = self._entries.reader()
        for first in range(0, self._num_entries, PIECE):
            size = min(PIECE, self._num_entries - first)
            table = entries.take(size * width).reshape(size, width).T
            cuts = np.flatnonzero(np.diff(np.cumsum(table[0]) // PIECE)) + 1
            yield from np.split(table, cuts, axis=1)


def _taken(crossings: Ints) -> Ints:
    """KV blocks taken by the end of each step; 0 before the first one."""
    return np.append(np.cumsum(crossings), 0)
