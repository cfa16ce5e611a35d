"""A long table of integers, added to row by row in Python and read as numpy arrays; small ones take four bytes each."""

from collections.abc import Iterator
from struct import Struct

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
FULL = 2**19  # bytes of a page: growing one large array over and over would copy it over and over
SMALL = 2**32


class Ledger:
    """Pages of integers: eight bytes each on the page in hand, four on a full one where they all fit.

    A row is added as `ledger.page += ledger.pack(*row)`; rows are many, and a call of our own for each would be felt.
    """

    __slots__ = ("_pages", "pack", "page")

    def __init__(self, width: int) -> None:
        """For rows of `width` integers."""
        self._pages: list[NDArray[np.uint32] | Ints] = []
        self.pack = Struct(f"={width}q").pack
        self.page = bytearray()

    def __len__(self) -> int:
        """Integers in all."""
        return sum(map(len, self._pages)) + len(self.page) // 8

    def turn_page(self) -> None:
        """Begin a new page; due as soon as the one in hand has FULL bytes."""
        self._pages.append(_packed(np.frombuffer(self.page, np.int64)))
        self.page = bytearray()

    def array(self) -> Ints:
        """All of it, as a copy."""
        return np.concatenate(self._read(), dtype=np.int64)

    def reader(self) -> "Reader":
        """For reading it once from the beginning."""
        return Reader(iter(self._read()))

    def _read(self) -> "list[NDArray[np.uint32] | Ints]":
        return [*self._pages, np.frombuffer(bytes(self.page), np.int64)]


class Reader:
    """Takes numbers in order, without all of them ever being in one array."""

    def __init__(self, pages: "Iterator[NDArray[np.uint32] | Ints]") -> None:
        self._pages = pages
        self._rest: NDArray[np.uint32] | Ints = np.zeros(0, np.int64)

    def take(self, count: int) -> Ints:
        """The next `count` of them; so many there must be."""
        parts, size = [self._rest], len(self._rest)
        while size < count:
            parts.append(next(self._pages))
            size += len(parts[-1])
        taken: Ints = np.concatenate(parts, dtype=np.int64)
        self._rest = parts[-1][len(parts[-1]) - (size - count) :]
        return taken[:count]


def _packed(page: Ints) -> NDArray[np.uint32] | Ints:
    fits = page.size and page.min() >= 0 and page.max() < SMALL
    return page.astype(np.uint32) if fits else page
