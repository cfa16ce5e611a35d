"""Some iterations of the log, unrolled into the columns of the table."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.decode_run import ends
from sim.engine_use import EngineUse
from sim.entries import Part

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
Blur = Callable[[Ints, int], Ints]  # from what successive iterations take, and the number of the first (`sim.blur`)

TIMES = ("start", "end", "encode", "compute", "host")
COUNTS = (
    *("num_items", "encoder_tokens", "num_prefill_tokens", "num_decodes", "context_tokens", "kv_blocks_used"),
    *("encoder_rows_held", "encoder_rows_resident", "num_running", "num_waiting"),
)
COLUMNS = ("iteration", *TIMES, *COUNTS)


class Piece:
    """Some entries, unrolled: as many times as it has iterations, each entry's fields are repeated.

    Only the ends of iterations are kept. What else there is of them is made when it is asked for and soon dropped: in
    memory that is used over and over, it takes less time than in memory that is new.
    """

    def __init__(self, part: Part, iteration: int, step: int, blur: Blur | None = None) -> None:
        self.entry, quanta = part
        self.counts, self.begun, self.decodes = (self.entry[name] for name in ("count", "start", "num_decodes"))
        self.iteration, self.step = iteration, step  # of the first one: its number, decode steps before it
        self.size = int(self.counts.sum())
        self.firsts = np.cumsum(self.counts) - self.counts  # place of each entry's first iteration
        self.ends = ends(self._later(), self._each(self.entry["total"]), *map(self._each, quanta))  # ns
        self.ends += self._each(self.begun)
        if blur is not None:
            self._draw(blur)
        self.steps = np.where(self.decodes > 0, self.counts, 0)
        self.num_steps = int(self.steps.sum())

    def decode_steps(self) -> tuple[Ints, Ints]:
        """(end in ns, number of decodes) of every iteration that decodes."""
        return self.ends[self._each(self.decodes > 0)], np.repeat(self.decodes, self.steps)

    def _starts(self) -> Ints:
        """Within an entry, each iteration begins as the one before it ends."""
        starts = np.empty_like(self.ends)
        starts[1:] = self.ends[:-1]
        starts[self.firsts] = self.begun
        return starts

    def _each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Of every iteration, what its entry has."""
        if values.size and (values == values[0]).all():  # no items, nothing encoded: filling takes a tenth of the time
            return np.full(self.size, values[0])
        return np.repeat(values, self.counts)

    def _draw(self, blur: Blur) -> None:
        """What iterations of runs take, with what those before them took."""
        elapsed, drawn = self.ends - self._starts(), self._each(self.counts > 1)
        elapsed[drawn] = blur(elapsed, self.iteration)[drawn]
        first = elapsed[self.firsts]
        self.ends = np.cumsum(elapsed)
        self.ends += self._each(self.begun - (self.ends[self.firsts] - first))

    def columns(self, names: Sequence[str], taken: Ints) -> Columns:
        """Those of the table, times in seconds; `taken` are the KV blocks taken by the end of each decode step."""
        return {name: self._column(name, taken) for name in names}

    def _column(self, name: str, taken: Ints) -> Any:
        entry = self.entry
        match name:
            case "iteration":
                return np.arange(self.iteration, self.iteration + self.size)
            case "start":
                return self._starts() / 1e9
            case "end":
                return self.ends / 1e9
            case "compute":
                return (self.ends - self._starts() - self._each(entry["encode"] + entry["host"])) / 1e9
            case "encode" | "host":
                return self._each(entry[name] / 1e9)
            case "context_tokens":
                return self._each(entry[name]) + self._each(self.decodes) * self._later()
            case "kv_blocks_used":
                return self._each(entry[name] - taken[self._first_steps(taken)]) + self._taken_by(taken)
        return self._each(entry[name])

    def _later(self) -> Ints:
        """How many iterations of its entry come before each iteration."""
        later = np.arange(self.size)
        later -= self._each(self.firsts)
        return later

    def _taken_by(self, taken: Ints) -> Ints:
        """Of them, those by the end of each iteration; none where it decodes nothing."""
        steps = taken[self.step : self.step + self.num_steps]
        if self.num_steps == self.size:
            return steps
        spread = np.zeros(self.size, np.int64)
        spread[self._each(self.decodes > 0)] = steps
        return spread

    def _first_steps(self, taken: Ints) -> Ints:
        """The decode step of each entry's first iteration; where there is none, one of no blocks."""
        first: Ints = self.step + np.cumsum(self.steps) - self.steps
        first[self.steps == 0] = len(taken) - 1
        return first

    def use(self, taken: Ints, start: float) -> EngineUse:
        """Of the iterations that end after `start` (s), by entries: blocks only grow in one, so its last tells most."""
        counts, elapsed = self.counts, self.ends - self._starts()
        if start > 0:
            late = self.ends / 1e9 > start
            counts, elapsed = np.add.reduceat(late, self.firsts, dtype=np.int64), elapsed[late]
        entry, first = self.entry, self._first_steps(taken)
        blocks = entry["kv_blocks_used"] + taken[first + self.counts - 1] - taken[first]
        return EngineUse(
            int(counts.sum()),
            int(counts @ entry["encoder_tokens"]),
            int(counts @ entry["encode"]),
            int(elapsed.sum()),
            int(blocks[counts > 0].max(initial=0)),
            int(entry["encoder_rows_held"][counts > 0].max(initial=0)),
        )
