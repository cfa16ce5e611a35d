"""Keeps the C library from handing memory back to the kernel between one large array and the next."""

from functools import cache

LARGEST = 31 * 2**20  # bytes: the most that glibc learns from is 32 MiB


@cache
def reuse_large_arrays() -> None:
    """Frees one block of that size, never touched: arrays up to it then come from memory that is already mapped.

    glibc maps arrays of 128 KiB and more afresh, page by page, until it has seen larger ones come and go (mallopt(3),
    M_MMAP_THRESHOLD); that took a quarter of the time for a run's tables. Elsewhere this does nothing. Once is enough,
    and not as a numpy array: for large ones numpy asks for huge pages, which cost more than they save where the
    kernel has to find fresh memory for all of each.
    """
    bytes(LARGEST)
