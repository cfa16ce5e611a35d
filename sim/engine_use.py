"""What iterations used, in all and at most: everything that a summary says of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class EngineUse(NamedTuple):
    """Times are in whole nanoseconds, so that it does not matter in which pieces they are added up."""

    num_iterations: int = 0
    encoder_tokens: int = 0
    encode: int = 0
    busy: int = 0  # encoding, computing and the host's time
    max_kv_blocks: int = 0
    max_encoder_rows: int = 0

    @classmethod
    def of_all(cls, pieces: Iterable[EngineUse]) -> EngineUse:
        iterations, tokens, encode, busy, blocks, rows = zip(cls(), *pieces, strict=True)
        return cls(sum(iterations), sum(tokens), sum(encode), sum(busy), max(blocks), max(rows))
