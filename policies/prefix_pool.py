"""KV blocks that requests share: counted references, and contents that stay until their block is wanted for others."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from itertools import islice

from policies.block_keys import BlockKey
from policies.blocks import BlockPool, Blocks


class FreeBlocks:
    """Blocks that nobody holds, in the order of their use: those never used, then the one freed longest ago."""

    __slots__ = ("_freed", "_fresh")

    def __init__(self, num_blocks: int) -> None:
        self._fresh = range(1, num_blocks + 1)
        self._freed: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[int]:
        yield from self._fresh
        yield from self._freed

    def pop(self) -> int:
        """The first of them."""
        if not self._fresh:
            return self._freed.popitem(last=False)[0]
        block, self._fresh = self._fresh[0], self._fresh[1:]
        return block

    def append(self, block: int) -> None:
        self._freed[block] = None

    def remove(self, block: int) -> None:
        """One that was freed is held again."""
        del self._freed[block]


class PrefixPool(BlockPool):
    """Blocks are given out by the rules of vLLM (v1/core/block_pool.py).

    Freed blocks go to the end of one queue, a request's last one first, so that a prefix loses its tail before its
    head; blocks are taken from the front, and only then forget their contents.
    """

    __slots__ = ("_free", "_keys", "blocks", "changed", "num_shared", "refs")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._free = FreeBlocks(num_blocks)
        self.refs = array("i", bytes(4 * (num_blocks + 1)))  # requests that hold each block
        self.num_shared = 0  # references beyond the first, summed over the blocks
        self.blocks: dict[BlockKey, int] = {}  # contents, held or not, and where they are
        self._keys: dict[int, BlockKey] = {}  # the other way round
        self.changed: list[BlockKey] = []  # contents that came or went since somebody last looked

    @property
    def free(self) -> Iterator[int]:
        """The block that is used first comes first."""
        return iter(self._free)

    @property
    def num_held(self) -> int:
        return self.num_used + self.num_shared

    def take(self, count: int) -> Blocks[int]:
        """For new contents: what was in the blocks is forgotten."""
        assert count <= self.num_free, "a plan took more KV blocks than there are"
        self.num_free -= count
        taken = array("i", [self._free.pop() for _ in range(count)])
        for block in taken:
            assert self.refs[block] == 0, "a held KV block was evicted"
            self.refs[block] = 1
            self._forget(block)
        return taken

    def hold(self, blocks: Sequence[int]) -> None:
        """One reference more to each, whether somebody holds it or nobody does."""
        for block in blocks:
            if self.refs[block]:
                self.num_shared += 1
            else:
                self._free.remove(block)
                self.num_free -= 1
            self.refs[block] += 1

    def give(self, blocks: Blocks[int]) -> None:
        for block in reversed(blocks):
            assert self.refs[block] > 0, "a KV block was given back more often than held"
            self.refs[block] -= 1
            if self.refs[block]:
                self.num_shared -= 1
            else:
                self._free.append(block)
                self.num_free += 1
        del blocks[:]

    def name(self, block: int, key: BlockKey) -> None:
        """The block is full of what the key names. Where another block has the same contents, that one is found."""
        if key not in self.blocks and block not in self._keys:
            self.blocks[key] = block
            self._keys[block] = key
            self.changed.append(key)

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self.blocks[key]
            self.changed.append(key)

    def num_unwatched(self, watched: Container[BlockKey], most: int) -> int:
        """How many blocks, up to `most`, can be taken before one with contents that are watched goes."""
        count = 0
        for block in islice(self._free, most):
            if self._keys.get(block) in watched:
                return count
            count += 1
        return count
