"""Pieces of the memory that a caching allocator has from the device, and the pools of those that are free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class Block:
    """A piece of a segment; its neighbours are those of the same segment."""

    __slots__ = ("address", "after", "allocated", "before", "pool", "size", "stream")

    def __init__(self, pool: BlockPool, stream: int, address: int, size: int) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.allocated = False
        self.before: Block | None = None
        self.after: Block | None = None

    @property
    def is_split(self) -> bool:
        """Whether its segment has other blocks."""
        return self.before is not None or self.after is not None

    @property
    def place(self) -> tuple[int, int, int]:
        """In a pool's order: only blocks of its own stream serve a request, the smallest first, then the lowest."""
        return self.stream, self.size, self.address


class BlockPool:
    """Free blocks, of small requests or of large ones."""

    def __init__(self, least_remainder: int) -> None:
        self.least_remainder = least_remainder  # bytes that are worth a block of their own when one is split
        self._blocks: dict[tuple[int, int, int], Block] = {}
        self._places: list[tuple[int, int, int]] = []

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks.values())

    def put(self, block: Block) -> None:
        self._blocks[block.place] = block
        insort(self._places, block.place)

    def remove(self, block: Block) -> None:
        del self._blocks[block.place]
        del self._places[bisect_left(self._places, block.place)]

    def best_fit(self, stream: int, size: int) -> Block | None:
        """Take out the smallest block that is large enough."""
        index = bisect_left(self._places, (stream, size, 0))
        if index == len(self._places) or self._places[index][0] != stream:
            return None
        block = self._blocks[self._places[index]]
        self.remove(block)
        return block
