"""A model of PyTorch's caching allocator for CUDA: how often it asks the device for memory, and what lies trapped.

The rules are those of its native backend with default settings, read in `c10/cuda/CUDACachingAllocator.cpp` of PyTorch
2.x and in the notes on memory management of its documentation (pytorch.org/docs/stable/notes/cuda.html); each stands
where it is applied. Not modelled: expandable segments, `max_split_size_mb` and other settings, CUDA graphs' pools,
blocks that several streams use.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.allocator_blocks import Block, BlockPool

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
