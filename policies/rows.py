"""Row numbers of the encoder-output tensor: given out in blocks of any size, not necessarily contiguous."""

from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]


class RowPool:
    """A stack of free row numbers, made as they are first needed."""

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity  # None limits nothing
        self._stack = np.zeros(0, dtype=np.int64)
        self._num_free = 0

    @property
    def num_free(self) -> int:
        """Rows not given out: those that came back, and as many as may yet be made."""
        return self._num_free + (0 if self._capacity is None else self._capacity - len(self._stack))

    def take(self, count: int) -> Rows:
        if count > self._num_free:
            self._grow(max(count, len(self._stack), 1024))
        assert count <= self._num_free, "more encoder-output rows taken than there are"
        self._num_free -= count
        return self._stack[self._num_free : self._num_free + count].copy()

    def give(self, rows: Rows) -> None:
        self._stack[self._num_free : self._num_free + len(rows)] = rows
        self._num_free += len(rows)

    def _grow(self, count: int) -> None:
        """Add up to `count` fresh row numbers under the free ones."""
        size, free = len(self._stack), self._num_free
        if self._capacity is not None:
            count = min(count, self._capacity - size)
        grown = np.empty(size + count, dtype=np.int64)
        grown[:count] = np.arange(size + count - 1, size - 1, -1)
        grown[count : count + free] = self._stack[:free]
        self._stack, self._num_free = grown, free + count
