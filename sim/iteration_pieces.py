"""Some iterations of the log, unrolled into the columns of the table."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.decode_run import SHIFT
from sim.engine_use import EngineUse
from sim.ledger import Reader

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
Blur = Callable[[Ints, int], Ints]  # from what successive iterations take, and the number of the first (`sim.blur`)

TIMES = ("start", "end", "encode", "compute", "host")
COUNTS = (
    *("num_items", "encoder_tokens", "num_prefill_tokens", "num_decodes", "context_tokens", "kv_blocks_used"),
    *("encoder_rows_held", "encoder_rows_resident", "num_running", "num_waiting"),
)
COLUMNS = ("iteration", *TIMES, *COUNTS)
FIELDS = (
    "count",
    "start",
    "total",
    "num_decodes",
    "context_tokens",
    "encode",
    "host",
    *(name for name in COUNTS if name not in ("num_decodes", "context_tokens")),
)
RUN = 2  # quanta of a run's first iteration past its whole nanoseconds, by how many each iteration takes longer
SHORT = 5  # the first fields: all that is kept of an entry where there is no table; contexts only of decodes alone


class Piece:
    """Some entries, unrolled: as many times as it has iterations, each entry's fields are repeated."""

    def __init__(self, table: Ints, iteration: int, step: int, runs: Reader, blur: Blur | None = None) -> None:
        self.counts, starts, totals, decodes = table[: SHORT - 1]
        self.table = table
        self.iteration, self.step = iteration, step  # of the first one: its number, decode steps before it
        self.size = int(self.counts.sum())
        self.firsts = np.cumsum(self.counts) - self.counts  # place of each entry's first iteration
        self.totals = self._longer(runs)
        self.totals >>= SHIFT
        self.totals += self._each(totals)
        if blur is not None:
            drawn = self._each(self.counts > 1)
            self.totals[drawn] = blur(self.totals, iteration)[drawn]
        self.ends = np.cumsum(self.totals)
        self.ends += self._each(starts - (self.ends[self.firsts] - self.totals[self.firsts]))
        self.decodes = self._each(decodes)
        self.steps = np.where(decodes > 0, self.counts, 0)
        self.num_steps = int(self.steps.sum())

    def _each(self, values: Ints) -> Ints:
        """Of every iteration, what its entry has."""
        return np.repeat(values, self.counts)

    def _longer(self, runs: Reader) -> Ints:
        """Quanta that each iteration took beyond the whole nanoseconds of its entry's first one."""
        is_run = self.counts > 1
        rests, slopes = np.zeros((2, len(is_run)), np.int64)
        rests[is_run], slopes[is_run] = runs.take(RUN * int(is_run.sum())).reshape(-1, RUN).T
        longer = self._later * self._each(slopes)
        longer += self._each(rests)
        return longer

    def column(self, name: str, taken: Ints) -> NDArray[Any]:
        """One of the table's, times in seconds; `taken` are the KV blocks taken by the end of each decode step."""
        values: Ints = self._whole(name, taken)
        return values / 1e9 if name in TIMES else values

    def _whole(self, name: str, taken: Ints) -> Any:
        match name:
            case "iteration":
                return np.arange(self.iteration, self.iteration + self.size)
            case "start":
                return self.ends - self.totals
            case "end":
                return self.ends
            case "compute":
                return self.totals - self._field("encode") - self._field("host")
            case "num_decodes":
                return self.decodes
            case "context_tokens":
                return self._field(name) + self.decodes * self._later
            case "kv_blocks_used":
                return self._field(name) + self._grown(taken)
        return self._field(name)

    def _field(self, name: str) -> Ints:
        return self._each(self.table[FIELDS.index(name)])

    @cached_property
    def _later(self) -> Ints:
        """How many iterations of its entry come before each iteration."""
        later: Ints = np.arange(self.size) - self._each(self.firsts)
        return later

    def _grown(self, taken: Ints) -> Ints:
        """KV blocks that each iteration's run has taken since its first one."""
        first = self._first_steps(taken)
        grown: Ints = taken[self._each(first) + self._later] - self._each(taken[first])
        return grown

    def _first_steps(self, taken: Ints) -> Ints:
        """The decode step of each entry's first iteration; where there is none, one of no blocks."""
        first: Ints = self.step + np.cumsum(self.steps) - self.steps
        first[self.steps == 0] = len(taken) - 1
        return first

    def use(self, taken: Ints, start: float) -> EngineUse:
        """Of the iterations that end after `start` (s), by entries: blocks only grow in one, so its last tells most."""
        counts, totals = self.counts, self.totals
        if start > 0:
            late = self.ends / 1e9 > start
            counts, totals = np.add.reduceat(late, self.firsts, dtype=np.int64), totals[late]
        entry = dict(zip(FIELDS, self.table, strict=True))
        first = self._first_steps(taken)
        blocks = entry["kv_blocks_used"] + taken[first + self.counts - 1] - taken[first]
        return EngineUse(
            int(counts.sum()),
            int(counts @ entry["encoder_tokens"]),
            int(counts @ entry["encode"]),
            int(totals.sum()),
            int(blocks[counts > 0].max(initial=0)),
            int(entry["encoder_rows_held"][counts > 0].max(initial=0)),
        )
