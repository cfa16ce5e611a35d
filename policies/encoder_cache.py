"""Encoder outputs by content key: held while a request needs them, then kept for reuse until the rows are wanted."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from policies.rows import RowPool

Key = tuple[Any, ...]  # (modality, content key, rows), or ("temporary", request, item)


class EncoderEntry:
    """One item's output rows: charged (pending), then given rows and being written (in flight), then ready."""

    __slots__ = ("__weakref__", "key", "num_holds", "num_rows", "ready", "rows")

    def __init__(self, key: Key, num_rows: int) -> None:
        self.key = key
        self.num_rows = num_rows
        self.num_holds = 0
        self.ready = False
        self.rows: np.ndarray[Any, np.dtype[np.int64]] | None = None  # addresses; None while pending

    @property
    def pending(self) -> bool:
        return self.rows is None


class EncoderCache:
    """A budget of rows with holds, as in TensorRT-LLM PR #16051: held entries never go, released ones oldest first.

    Only `charge` and `evict` let one go, and only `ServingState.begin` calls them; questions change nothing.

    Without references, as in SGLang, an output is held by the iterations that read it and by nobody in between. Then
    the capacity is that of what is kept: it makes room at its release, and goes at once if it is larger than that.
    """

    def __init__(self, capacity: int | None, *, reuse: bool = True, references: bool = True) -> None:
        """`capacity` in rows; None limits nothing, and then nothing is kept after its release either."""
        self.capacity = capacity
        self.references = references
        self.keeps_released = (reuse and capacity is not None) if references else True
        self.entries: dict[Key, EncoderEntry] = {}
        self.released: dict[Key, EncoderEntry] = {}  # ready, held by nobody; least recently released first
        self.held_rows = 0  # rows of entries with a hold, pending ones included
        self.released_rows = 0
        self.pending_rows = 0
        self._rows = RowPool(capacity if references else None)
        self.num_evictions = 0

    def __iter__(self) -> Iterator[EncoderEntry]:
        return iter(self.entries.values())

    @property
    def resident_rows(self) -> int:
        """Rows that hold outputs, finished or being written."""
        return self.held_rows - self.pending_rows + self.released_rows

    def get(self, key: Key) -> EncoderEntry | None:
        return self.entries.get(key)

    def hold(self, entry: EncoderEntry) -> None:
        if entry.num_holds == 0 and self.released.pop(entry.key, None) is not None:
            self.released_rows -= entry.num_rows
            self.held_rows += entry.num_rows
        entry.num_holds += 1

    def release(self, entry: EncoderEntry) -> None:
        """Let go once. The last release keeps a finished, nameable output for reuse and drops any other."""
        assert entry.num_holds > 0, "an encoder output was released more often than held"
        entry.num_holds -= 1
        if entry.num_holds:
            return
        self.held_rows -= entry.num_rows
        if self.keeps(entry):
            self._make_room(entry.num_rows)
            self.released[entry.key] = entry
            self.released_rows += entry.num_rows
        else:
            self._drop(entry)

    def keeps(self, entry: EncoderEntry) -> bool:
        """Whether it stays after its last release; without references also what has no name, for its own next chunk."""
        if not entry.ready or not self.keeps_released:
            return False
        if self.references:
            return bool(entry.key[0] != "temporary")
        return self.capacity is None or entry.num_rows <= self.capacity

    def refresh(self, key: Key) -> None:
        """A released output counts as released just now."""
        if key in self.released:
            self.released[key] = self.released.pop(key)

    def charge(self, key: Key, num_rows: int) -> EncoderEntry:
        """A pending entry with its first hold: room is made for it now, its rows are given out by `launch`."""
        entry = EncoderEntry(key, num_rows)
        if self.references:
            self._make_room(num_rows)
        self.entries[key] = entry
        entry.num_holds = 1
        self.held_rows += num_rows
        self.pending_rows += num_rows
        return entry

    def launch(self, entry: EncoderEntry) -> None:
        """Give a pending entry its rows: from here on it is being encoded."""
        entry.rows = self._rows.take(entry.num_rows)
        self.pending_rows -= entry.num_rows

    def withdraw(self, entry: EncoderEntry) -> None:
        """Its encoding failed: the entry is pending again."""
        assert entry.rows is not None and not entry.ready
        self._rows.give(entry.rows)
        entry.rows = None
        self.pending_rows += entry.num_rows

    def _make_room(self, num_rows: int) -> None:
        """Drop what was released longest ago. Without references, what this iteration reads takes no room."""
        if self.capacity is None:
            return
        left = self.capacity - (self.held_rows if self.references else 0)
        while self.released_rows + num_rows > left:
            assert self.released, "a plan took more encoder-cache rows than there are"
            self.evict(next(iter(self.released)))

    def evict(self, key: Key) -> None:
        """Drop an output that nobody holds."""
        entry = self.released.pop(key)
        self.released_rows -= entry.num_rows
        self.num_evictions += 1
        self._drop(entry)

    def _drop(self, entry: EncoderEntry) -> None:
        del self.entries[entry.key]
        if entry.rows is None:
            self.pending_rows -= entry.num_rows
        else:
            self._rows.give(entry.rows)
