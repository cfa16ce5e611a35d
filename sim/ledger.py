"""A long list of integers, eight bytes each: appended to in Python, read as one numpy array."""

from array import array

import numpy as np
from numpy.typing import NDArray

FULL = 65536  # integers of a page: growing one large array over and over would copy it over and over


class Ledger:
    """Pages of 64-bit integers."""

    __slots__ = ("_page", "_pages")

    def __init__(self) -> None:
        self._pages: list[array[int]] = []
        self._page = array("q")

    def extend(self, numbers: list[int]) -> None:
        page = self._page
        if len(page) >= FULL:
            self._pages.append(page)
            page = self._page = array("q")
        page.fromlist(numbers)

    def array(self) -> NDArray[np.int64]:
        """All of it, as a copy."""
        return np.concatenate([np.frombuffer(page, np.int64) for page in (*self._pages, self._page) if page] or [_NONE])


_NONE = np.zeros(0, np.int64)
