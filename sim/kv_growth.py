"""KV blocks that decodes have taken, out of where each stretch of decoding begins and how long it is."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def blocks_taken(step: Ints, count: Ints, computed: Ints, decode_steps: int, block_size: int) -> Ints:
    """Those taken by the end of each of the `decode_steps`; and 0, for before the first.

    Of every stretch: its first step, its number of steps, tokens in the KV before it. A request needs a block when its
    tokens fill the last, so once in `block_size` steps.
    """
    first = step + -computed % block_size
    times = np.maximum(0, -(-(step + count - first) // block_size))
    # a row for each cycle of block_size steps: down a column, a request's crossings are neighbours
    rows, column = decode_steps // block_size + 2, first % block_size
    begun = np.minimum(first // block_size, rows - 1)
    ended = np.minimum(first // block_size + times, rows - 1)
    taken = np.zeros(rows * block_size, np.int64)
    np.add.at(taken, begun * block_size + column, 1)
    np.subtract.at(taken, ended * block_size + column, 1)
    cycles = taken.reshape(rows, block_size)
    np.cumsum(cycles, axis=0, out=cycles)
    np.cumsum(taken, out=taken)
    taken[decode_steps] = 0
    return taken[: decode_steps + 1]
