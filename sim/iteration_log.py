"""One row for every iteration, kept small: a run of decode iterations is one entry, unrolled when it is asked for."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome
from sim.engine_use import EngineUse
from sim.entries import Entries
from sim.iteration_pieces import COLUMNS, Blur, Columns, Ints, Piece
from sim.ledger import FULL

PIECE = 32768  # iterations unrolled at a time: few enough pieces that what each costs does not matter


class IterationLog:
    """Times are integer nanoseconds in the log and seconds in the table."""

    def __init__(self, keep: bool = True) -> None:
        """Without `keep` only what the ITL needs is remembered, and the table is empty."""
        self.keep = keep
        self.blur: Blur | None = None  # what iterations of a run come to, where that is drawn
        self.decode_steps = 0  # steps of the decode cohort so far
        self.num_iterations = 0
        self._entries = Entries(keep)
        self._steps: tuple[Ints, NDArray[np.int32]] | None = None  # once they were asked for
        self._pieces: list[Piece] = []
        self._pieces_of = -1  # the number of iterations that they unroll

    def add(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """One iteration, or a run of them, as it stands after `begin`."""
        entries, num_decodes, count = self._entries, plan.num_decodes, 1
        total, run = outcome.total, outcome.run
        if run is not None:
            count, total = entries.add_run(run)
        self.num_iterations += count
        if num_decodes:
            self.decode_steps += count
        rows = entries.rows
        if len(rows.page) >= FULL:
            rows.turn_page()
        if not self.keep:
            alone = not (plan.encode or plan.prefill)
            rows.page += rows.pack(count, start, total, num_decodes, plan.context_tokens if alone else 0)
            return
        pool, encoder = state.pool, len(state.cache.entries)  # among them all that are being encoded
        used, active = pool.num_blocks - pool.num_free, len(state.contexts) + len(state.decodes.members)
        tokens, context, waiting = plan.num_prefill_tokens, plan.context_tokens, len(state.waiting)
        if encoder:
            entries.add_encoder(plan, state.cache, outcome.encode)
        rows.page += rows.pack(
            count, start, total, num_decodes, context, outcome.host, tokens, used, active, waiting, encoder
        )

    def add_decodes(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """The same, where all that is active decodes and nobody waits: most iterations, so it is kept short."""
        entries, num_decodes, count = self._entries, plan.num_decodes, 1
        total, run = outcome.total, outcome.run
        if run is not None:
            count, total = entries.add_run(run)
        self.num_iterations += count
        self.decode_steps += count
        rows = entries.rows
        if len(rows.page) >= FULL:
            rows.turn_page()
        if not self.keep:
            rows.page += rows.pack(count, start, total, num_decodes, plan.context_tokens)
            return
        pool, encoder = state.pool, len(state.cache.entries)
        if encoder:
            entries.add_encoder(plan, state.cache, 0)
        context, used = plan.context_tokens, pool.num_blocks - pool.num_free
        rows.page += rows.pack(
            count, start, total, num_decodes, context, outcome.host, 0, used, num_decodes, 0, encoder
        )

    def decode_log(self) -> tuple[Ints, NDArray[np.int32]]:
        """(end in ns, number of decodes) of every step of the cohort."""
        if self._steps is None or len(self._steps[0]) != self.decode_steps:
            self._steps = self._read_steps()
            if not self.keep:  # nothing else is ever asked for, and long runs are why no table is kept
                self._entries = Entries(keep=False)
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
        for entry, _ in self._entries.parts(PIECE):
            counts, decodes, contexts = entry["count"], entry["num_decodes"], entry["context_tokens"]
            alone = (decodes > 0) & (contexts > 0)
            if self.keep:
                alone &= (entry["num_items"] == 0) & (entry["num_prefill_tokens"] == 0)
            yield counts[alone], decodes[alone], contexts[alone]

    def _unrolled(self) -> Iterable[Piece]:
        """Kept once they are made, as every column is made from them; not where there is no table."""
        if self.keep and self._pieces_of != self.num_iterations:
            self._pieces, self._pieces_of = list(self._unroll()), self.num_iterations
        return self._pieces if self.keep else self._unroll()

    def _unroll(self) -> Iterator[Piece]:
        iteration, step = 0, 0
        for part in self._entries.parts(PIECE):
            piece = Piece(part, iteration, step, self.blur)
            iteration += len(piece.ends)
            step += piece.num_steps
            yield piece
