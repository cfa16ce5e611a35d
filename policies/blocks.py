"""Paged KV memory: numbered blocks of a fixed number of tokens, given out and taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable

import numpy as np

Blocks = array  # of ints: block numbers are many, and as objects of their own they would cost ten times as much


def no_blocks() -> Blocks[int]:
    return array("i")


class BlockPool(ABC):
    """Block numbers are addresses in the executor's KV tensors; number 0 is kept for padding there."""

    __slots__ = ("block_size", "num_blocks", "num_free")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_free = num_blocks

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    @property
    def num_held(self) -> int:
        """As `num_used`, but a block that several requests share counts for each of them."""
        return self.num_used

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    @property
    @abstractmethod
    def free(self) -> Iterable[int]:
        """The blocks that nobody holds."""

    @abstractmethod
    def take(self, count: int) -> Blocks[int]:
        """`count` block numbers; the caller has asked before, so running out is an impossible state."""

    @abstractmethod
    def give(self, blocks: Blocks[int]) -> None:
        """Take all of a request's blocks back and empty its table, so that giving twice gives nothing."""


class KVBlockPool(BlockPool):
    """Every block has one holder or none, and nobody asks for what it once held: a stack."""

    __slots__ = ("_stack",)

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._stack = no_blocks()  # its first `num_free` are free; always of one length, as resizing may copy it all
        self._stack.frombytes(np.arange(num_blocks, 0, -1, dtype=np.int32).tobytes())

    @property
    def free(self) -> Blocks[int]:
        """The block freed last is used first."""
        return self._stack[: self.num_free]

    def take(self, count: int) -> Blocks[int]:
        end = self.num_free
        self.num_free = start = end - count
        assert start >= 0, "a plan took more KV blocks than there are"
        return self._stack[start:end]

    def give(self, blocks: Blocks[int]) -> None:
        start = self.num_free
        self.num_free = end = start + len(blocks)
        self._stack[start:end] = blocks
        del blocks[:]
