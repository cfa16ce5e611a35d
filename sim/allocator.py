"""A model of PyTorch's caching allocator for CUDA: how often it asks the device for memory, and what lies trapped.

The rules are those of its native backend with default settings, read in `c10/cuda/CUDACachingAllocator.cpp` of PyTorch
2.x and in the notes on memory management of its documentation (pytorch.org/docs/stable/notes/cuda.html); each stands
where it is applied. Not modelled: expandable segments, `max_split_size_mb` and other settings, CUDA graphs' pools,
blocks that several streams use.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

MIB = 2**20
SMALLEST_BLOCK = 512  # bytes; sizes are multiples of it
SMALL_REQUEST = MIB  # and less: from the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB  # for requests below LARGE_REQUEST
LARGE_REQUEST = 10 * MIB  # and more: a segment of their own, in multiples of ROUND_LARGE
ROUND_LARGE = 2 * MIB


@dataclass(frozen=True)
class AllocatorFigures:
    """What `torch.cuda.memory_stats` would say at the end of a run."""

    peak_reserved_bytes: int  # taken from the device
    peak_allocated_bytes: int  # of that, in use by tensors
    peak_inactive_split_bytes: int  # of that, free but trapped in segments that something else is in
    device_allocations: int  # calls of cudaMalloc
    allocation_retries: int  # times that the whole cache was given back because the device was full
    out_of_memory_errors: int  # allocations that failed even so


def block_size(num_bytes: int) -> int:
    """What a request takes: whole 512 bytes, at least one of them."""
    return max(SMALLEST_BLOCK, _multiple(num_bytes, SMALLEST_BLOCK))


def segment_size(size: int) -> int:
    """What is asked of the device where no cached block is large enough for a block of `size`."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_REQUEST else _multiple(size, ROUND_LARGE)


def _multiple(number: int, unit: int) -> int:
    return -(-number // unit) * unit


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


class CachingAllocator:
    """Freed blocks are kept for later requests; the device gets memory back only when it has no more to give."""

    def __init__(self, device_bytes: int) -> None:
        self.device_bytes = device_bytes
        self.segments: dict[int, int] = {}  # address -> bytes
        self.reserved_bytes = self.allocated_bytes = self.inactive_split_bytes = 0
        self._small = BlockPool(SMALLEST_BLOCK)
        self._large = BlockPool(SMALL_REQUEST + 1)
        self._next_address = 0
        self._device_allocations = self._retries = self._errors = 0
        self._peaks = (0, 0, 0)

    @property
    def free_blocks(self) -> list[Block]:
        return [*self._small, *self._large]

    def figures(self) -> AllocatorFigures:
        return AllocatorFigures(*self._peaks, self._device_allocations, self._retries, self._errors)

    def allocate(self, num_bytes: int, stream: int = 0) -> Block | None:
        """A block of at least `num_bytes`, or None where the device is full."""
        size = block_size(num_bytes)
        pool = self._small if size <= SMALL_REQUEST else self._large
        block = pool.best_fit(stream, size) or self._segment(pool, stream, segment_size(size))
        if block is None:
            self._errors += 1
            return None
        if block.is_split:
            self.inactive_split_bytes -= block.size
        if block.size - size >= pool.least_remainder:
            self._split(block, size)
        block.allocated = True
        self.allocated_bytes += block.size
        self._remember_peaks()
        return block

    def free(self, block: Block) -> None:
        """Back into its pool, as one with whatever is free beside it."""
        assert block.allocated, "a block was freed twice"
        block.allocated = False
        self.allocated_bytes -= block.size
        for other in (block.before, block.after):
            if other is not None and not other.allocated:
                self._merge(block, other)
        block.pool.put(block)
        if block.is_split:
            self.inactive_split_bytes += block.size
        self._remember_peaks()

    def give_back(self) -> None:
        """Return all free segments to the device, as `torch.cuda.empty_cache` does; what is split stays."""
        for block in self.free_blocks:
            if not block.is_split:
                block.pool.remove(block)
                self.reserved_bytes -= self.segments.pop(block.address)

    def _segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """From the device, which is asked once more after everything cached was given back."""
        if self.reserved_bytes + size > self.device_bytes:
            self._retries += 1
            self.give_back()
        if self.reserved_bytes + size > self.device_bytes:
            return None
        block = Block(pool, stream, self._next_address, size)
        self._next_address += size
        self.segments[block.address] = size
        self.reserved_bytes += size
        self._device_allocations += 1
        return block

    def _split(self, block: Block, size: int) -> None:
        """The block keeps its first `size` bytes."""
        rest = Block(block.pool, block.stream, block.address + size, block.size - size)
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, size
        block.pool.put(rest)
        self.inactive_split_bytes += rest.size

    def _merge(self, block: Block, other: Block) -> None:
        """The block takes in a free neighbour."""
        other.pool.remove(other)
        self.inactive_split_bytes -= other.size
        block.size += other.size
        if other is block.before:
            block.address, block.before = other.address, other.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = other.after
            if block.after is not None:
                block.after.before = block

    def _remember_peaks(self) -> None:
        reserved, allocated, inactive = self._peaks
        self._peaks = (
            max(reserved, self.reserved_bytes),
            max(allocated, self.allocated_bytes),
            max(inactive, self.inactive_split_bytes),
        )
