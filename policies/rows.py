"""Row numbers of the encoder-output tensor: given out in blocks of any size, not necessarily contiguous."""

from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]


class RowPool:
    """A stack of free row numbers. Without a capacity it grows on demand."""

    def __init__(self, capacity: int | None) -> None:
        self._grows = capacity is None
        self._stack = np.arange(capacity or 0, dtype=np.int64)[::-1].copy()
        self.num_free = len(self._stack)

    def take(self, count: int) -> Rows:
        if self._grows and count > self.num_free:
            self._grow(max(count, len(self._stack), 1024))
        assert count <= self.num_free, "more encoder-output rows taken than there are"
        self.num_free -= count
        return self._stack[self.num_free : self.num_free + count].copy()

    def give(self, rows: Rows) -> None:
        self._stack[self.num_free : self.num_free + len(rows)] = rows
        self.num_free += len(rows)

    def _grow(self, count: int) -> None:
        """Add `count` fresh row numbers under the free ones."""
        size = len(self._stack)
        fresh = np.arange(size + count - 1, size - 1, -1, dtype=np.int64)
        grown = np.empty(size + count, dtype=np.int64)
        grown[:count] = fresh
        grown[count : count + self.num_free] = self._stack[: self.num_free]
        self._stack = grown
        self.num_free += count
