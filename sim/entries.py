"""What is kept of iterations while a run goes on: rows of integers, with more of them for runs and for the encoder."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.encoder_cache import EncoderCache
from policies.plan import IterationPlan
from sim.decode_run import QUANTUM, SHIFT, DecodeRun
from sim.ledger import FULL, Ledger, Reader

Ints = NDArray[np.int64]

# all that is kept of an entry where there is no table; contexts then only of decodes alone
SHORT = ("count", "start", "total", "num_decodes", "context_tokens")
ALWAYS = (
    *SHORT,
    *("host", "num_prefill_tokens", "kv_blocks_used", "num_running", "num_waiting"),
    "encoder",  # not 0 where a row of the encoder goes with it
)
ENCODER = ("encode", "num_items", "encoder_tokens", "encoder_rows_held", "encoder_rows_resident")
QUANTA = ("first", "slope", "rest")  # of a run: what its first iteration takes past whole ns, its slope and its rest
AT_A_TIME = 4096  # entries


class Part(NamedTuple):
    """Some entries, column by column."""

    entry: dict[str, Ints]
    quanta: Ints  # rows of QUANTA, of zeros where an entry is a single iteration


class Entries:
    """A run of decode iterations is one entry."""

    __slots__ = ("encoder", "fields", "rows", "runs")

    def __init__(self, keep: bool) -> None:
        """`keep` all that a table needs."""
        self.fields = ALWAYS if keep else SHORT
        self.rows = Ledger(len(self.fields))
        self.runs = Ledger(len(QUANTA))
        self.encoder = Ledger(len(ENCODER))

    def add_run(self, run: DecodeRun) -> tuple[int, int]:
        """How many iterations it was, and the whole nanoseconds of the first."""
        count, first, slope, rest = run
        if count == 1:
            return 1, rest + first >> SHIFT
        runs = self.runs
        runs.page += runs.pack(first % QUANTUM, slope, rest)
        if len(runs.page) >= FULL:
            runs.turn_page()
        return count, first >> SHIFT

    def add_encoder(self, plan: IterationPlan, cache: EncoderCache, encode: int) -> None:
        """Where outputs are cached or come about, which text alone never does."""
        rows, held = self.encoder, cache.held_rows
        resident = held - cache.pending_rows + cache.released_rows
        rows.page += rows.pack(encode, len(plan.encode), plan.encoder_tokens, held, resident)
        if len(rows.page) >= FULL:
            rows.turn_page()

    def parts(self, most_iterations: int) -> Iterator[Part]:
        """All entries in order, as many together as make about so many iterations."""
        width, rows, runs, encoder = len(self.fields), self.rows.reader(), self.runs.reader(), self.encoder.reader()
        number = len(self.rows) // width
        for first in range(0, number, AT_A_TIME):
            size = min(AT_A_TIME, number - first)
            table = rows.take(size * width).reshape(size, width).T
            cuts = np.flatnonzero(np.diff(np.cumsum(table[0]) // most_iterations)) + 1
            for start, stop in pairwise([0, *cuts, size]):
                entry = dict(zip(self.fields, table[:, start:stop], strict=True))
                if "encoder" in entry:
                    entry |= zip(ENCODER, _spread(encoder, ENCODER, entry["encoder"] != 0), strict=True)
                yield Part(entry, _spread(runs, QUANTA, entry["count"] > 1))


def _spread(rows: Reader, fields: Sequence[str], have: NDArray[np.bool_]) -> Ints:
    """A column for every entry: of those that have a row the next one, of others zeros."""
    count = int(have.sum())
    if not count:
        return np.broadcast_to(np.int64(0), (len(fields), len(have)))
    spread = np.zeros((len(fields), len(have)), np.int64)
    spread[:, have] = rows.take(len(fields) * count).reshape(count, len(fields)).T
    return spread
