"""The modelled caching allocator: each rule on a case computed by hand, and what holds after any requests."""

from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.allocator import (
    MIB,
    SMALL_REQUEST,
    SMALLEST_BLOCK,
    AllocatorFigures,
    Block,
    CachingAllocator,
    block_size,
    segment_size,
)

LARGE = 2**40  # bytes; a device that is never full


def allocated(allocator: CachingAllocator, num_bytes: int, **more: int) -> Block:
    block = allocator.allocate(num_bytes, **more)
    assert block is not None
    return block


@pytest.mark.parametrize(("asked", "size"), [(1, 512), (512, 512), (513, 1024), (MIB - 1, MIB), (3 * MIB, 3 * MIB)])
def test_sizes_are_whole_512_bytes(asked: int, size: int) -> None:
    assert block_size(asked) == size


@pytest.mark.parametrize(
    ("size", "segment"), [(0.5, 2), (1, 2), (1.5, 20), (9.5, 20), (10, 10), (11, 12), (12, 12), (33, 34)]
)
def test_what_is_asked_of_the_device(size: float, segment: int) -> None:
    """Small requests 2 MiB, those up to 10 MiB 20 MiB, larger ones whole 2 MiB."""
    assert segment_size(int(size * MIB)) == segment * MIB


def test_a_small_request_leaves_the_rest_of_its_segment() -> None:
    allocator = CachingAllocator(LARGE)
    assert allocated(allocator, 2 * MIB - 512 - MIB).size == MIB - 512
    assert allocator.inactive_split_bytes == MIB + 512
    assert allocated(allocator, MIB).size == MIB  # and 512 bytes are still worth a block
    assert (allocator.inactive_split_bytes, allocator.reserved_bytes) == (512, 2 * MIB)


def test_a_large_remainder_is_split_off_only_above_one_mib() -> None:
    whole, split = CachingAllocator(LARGE), CachingAllocator(LARGE)
    assert allocated(whole, 11 * MIB).size == 12 * MIB and whole.inactive_split_bytes == 0
    assert allocated(split, 9 * MIB).size == 9 * MIB and split.inactive_split_bytes == 11 * MIB
    assert whole.allocated_bytes == 12 * MIB  # as PyTorch counts: the block, not the request


def test_one_large_segment_serves_several_requests() -> None:
    allocator = CachingAllocator(LARGE)
    addresses = [allocated(allocator, 6 * MIB).address for _ in range(3)]
    assert addresses == [0, 6 * MIB, 12 * MIB]
    assert allocator.figures() == AllocatorFigures(20 * MIB, 18 * MIB, 14 * MIB, 1, 0, 0)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator(LARGE)
    blocks = [allocated(allocator, size * MIB) for size in (30, 20, 40, 20)]
    for block in reversed(blocks):
        allocator.free(block)
    assert allocated(allocator, 19 * MIB).address == 30 * MIB  # of two alike the lower one
    assert allocated(allocator, 21 * MIB).address == 0
    assert allocator.figures().device_allocations == 4


def test_the_same_requests_again_may_need_more() -> None:
    """What comes first takes the smallest segment, which another one needs later."""
    allocator = CachingAllocator(LARGE)
    for device_allocations in (2, 3):
        for block in [allocated(allocator, size * MIB) for size in (5, 16, 15)]:
            allocator.free(block)
        assert allocator.figures().device_allocations == device_allocations


def test_free_neighbours_become_one() -> None:
    allocator = CachingAllocator(LARGE)
    first, middle, last = (allocated(allocator, 4 * MIB) for _ in range(3))  # and 8 MiB behind them
    allocator.free(first)
    assert [block.size for block in allocator.free_blocks] == [8 * MIB, 4 * MIB]
    allocator.free(last)
    assert sorted(block.size for block in allocator.free_blocks) == [4 * MIB, 12 * MIB]
    assert allocator.inactive_split_bytes == 16 * MIB
    allocator.free(middle)
    assert [(block.address, block.size) for block in allocator.free_blocks] == [(0, 20 * MIB)]
    assert (allocator.inactive_split_bytes, allocator.figures().peak_inactive_split_bytes) == (0, 16 * MIB)


def test_what_stays_traps_what_is_freed_around_it() -> None:
    """A request for all that is free is not served from it: it lies in two pieces."""
    allocator = CachingAllocator(LARGE)
    before, _, after = (allocated(allocator, size * MIB) for size in (9, 2, 9))
    allocator.free(before)
    allocator.free(after)
    assert allocator.inactive_split_bytes == 18 * MIB
    allocated(allocator, 18 * MIB)
    assert allocator.figures() == AllocatorFigures(38 * MIB, 20 * MIB, 18 * MIB, 2, 0, 0)


def test_small_and_large_requests_share_nothing() -> None:
    allocator = CachingAllocator(LARGE)
    allocator.free(allocated(allocator, 5 * MIB))
    allocated(allocator, MIB)
    assert sorted(allocator.segments.values()) == [2 * MIB, 20 * MIB]


def test_streams_share_nothing() -> None:
    allocator = CachingAllocator(LARGE)
    for stream in (1, 0, 2, 1):
        allocator.free(allocated(allocator, 20 * MIB, stream=stream))
    assert allocator.figures().device_allocations == 3


def test_a_full_device_gets_its_segments_back_first() -> None:
    allocator = CachingAllocator(50 * MIB)
    kept = allocated(allocator, 20 * MIB)
    allocator.free(allocated(allocator, 24 * MIB))
    allocated(allocator, 30 * MIB)
    assert allocator.figures() == AllocatorFigures(50 * MIB, 50 * MIB, 0, 3, 1, 0)
    assert kept.allocated and len(allocator.segments) == 2


def test_a_split_segment_is_not_given_back() -> None:
    allocator = CachingAllocator(50 * MIB)
    kept, freed = (allocated(allocator, 4 * MIB) for _ in range(2))
    allocator.free(freed)
    assert allocator.allocate(32 * MIB) is None
    assert allocator.figures() == AllocatorFigures(20 * MIB, 8 * MIB, 16 * MIB, 1, 1, 1)
    allocator.free(kept)
    assert allocated(allocator, 32 * MIB).size == 32 * MIB
    assert allocator.figures().allocation_retries == 2 and list(allocator.segments.values()) == [32 * MIB]


def test_a_block_is_freed_once() -> None:
    allocator = CachingAllocator(LARGE)
    block = allocated(allocator, 1)
    allocator.free(block)
    with pytest.raises(AssertionError, match="freed twice"):
        allocator.free(block)


def check(allocator: CachingAllocator, live: dict[Block, int]) -> None:
    """Segments are covered by their blocks exactly, nothing free lies beside something free, and the books agree."""
    free = allocator.free_blocks
    blocks = sorted([*live, *free], key=lambda block: block.address)
    starts = [(start, start + size) for start, size in sorted(allocator.segments.items())]
    in_segments = [[b for b in blocks if start <= b.address < end] for start, end in starts]
    assert sum(map(len, in_segments)) == len(blocks)
    for (start, end), those in zip(starts, in_segments, strict=True):
        assert (those[0].address, those[-1].address + those[-1].size) == (start, end)
        assert (those[0].before, those[-1].after) == (None, None)
        for one, other in pairwise(those):
            assert one.address + one.size == other.address and one.after is other and other.before is one
            assert one.allocated or other.allocated
        assert len(list(groupby((b.stream, b.pool) for b in those))) == 1
    assert allocator.allocated_bytes == sum(block.size for block in live)
    assert allocator.reserved_bytes == sum(allocator.segments.values()) <= allocator.device_bytes
    assert allocator.allocated_bytes + sum(block.size for block in free) == allocator.reserved_bytes
    whole = set(allocator.segments.items())
    assert allocator.inactive_split_bytes == sum(b.size for b in free if (b.address, b.size) not in whole)
    assert all(0 <= b.size - block_size(asked) <= SMALL_REQUEST for b, asked in live.items())
    assert all(b.size - block_size(asked) < SMALLEST_BLOCK for b, asked in live.items() if asked <= SMALL_REQUEST)


SIZES = st.one_of(st.integers(1, 2 * MIB), st.integers(1, 60).map(lambda size: size * MIB), st.just(768 * 1024))
STEPS = st.lists(st.one_of(st.tuples(SIZES, st.integers(0, 1)), st.integers(0, 20)), max_size=60)


@given(st.sampled_from([64 * MIB, 200 * MIB, LARGE]), STEPS)
def test_after_any_requests_the_books_agree(device: int, steps: list[Any]) -> None:
    allocator, live = CachingAllocator(device), dict[Block, int]()
    refused = 0
    for step in steps:
        if isinstance(step, tuple):
            block = allocator.allocate(step[0], stream=step[1])
            refused += block is None
            live |= {} if block is None else {block: step[0]}
        elif live:
            block = list(live)[step % len(live)]
            del live[block]
            allocator.free(block)
        check(allocator, live)
    figures = allocator.figures()
    assert figures.out_of_memory_errors == refused <= figures.allocation_retries
    assert figures.peak_allocated_bytes <= figures.peak_reserved_bytes <= device
    for block in live:
        allocator.free(block)
    allocator.give_back()
    assert (allocator.reserved_bytes, allocator.allocated_bytes, allocator.inactive_split_bytes) == (0, 0, 0)
