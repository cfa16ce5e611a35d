"""x"""
from functools import cache
LARGEST = 31 * 2**20
@cache
def reuse_large_arrays() -> None:
    bytes(LARGEST)
