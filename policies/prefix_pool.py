"""KV blocks that requests share: counted references, and contents that stay until their block is wanted for others."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from itertools import islice

from policies.block_keys import BlockKey
from policies.blocks import Blocks, KVBlockPool


class FreeBlocks:
    """Blocks that nobody holds, in the order of their use: those never used, then the one freed longest ago."""

    __slots__ = ("_freed", "_fresh")

    def __init__(self, num_blocks: int) -> None:
        self._fresh = range(1, num_blocks + 1)
        self._freed: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._freed)

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


class PrefixPool(KVBlockPool):
    """Blocks are given out by the rules of vLLM (v1/core/block_pool.py).

    Freed blocks go to the end of one queue, a request's last one first, so that a prefix loses its tail before its
    head; blocks are taken from the front, and only then forget their contents.
    """

    __slots__ = ("_keys", "blocks", "changed", "num_shared", "refs")

    free: FreeBlocks  # type: ignore[assignment]  # counted as the other's stack is

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free = FreeBlocks(num_blocks)
        self.refs = array("i", bytes(4 * (num_blocks + 1)))  # requests that hold each block
        self.num_shared = 0  # references beyond the first, summed over the blocks
        self.blocks: dict[BlockKey, int] = {}  # contents, held or not, and where they are
        self._keys: dict[int, BlockKey] = {}  # the other way round
        self.changed: list[BlockKey] = []  # contents that came or went since somebody last looked

    def take(self, count: int) -> Blocks[int]:
        """`count` blocks for new contents; the caller has asked before, so running out is an impossible state."""
        assert count <= len(self.free), "a plan took more KV blocks than there are"
        taken = array("i", [self.free.pop() for _ in range(count)])
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
                self.free.remove(block)
            self.refs[block] += 1

    def give(self, blocks: Blocks[int]) -> None:
        """Take all of a request's references back and empty its table, so that giving twice gives nothing."""
        for block in reversed(blocks):
            assert self.refs[block] > 0, "a KV block was given back more often than held"
            self.refs[block] -= 1
            if self.refs[block]:
                self.num_shared -= 1
            else:
                self.free.append(block)
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
        for block in islice(self.free, most):
            if self._keys.get(block) in watched:
                return count
            count += 1
        return count
