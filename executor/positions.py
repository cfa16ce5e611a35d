"""Three-axis rotary positions of Qwen2-VL: text counts on, an image spans time, height and width from one start.

As `get_rope_index` of transformers' Qwen2-VL computes them; a test holds the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.request import MultimodalItem, Request

Positions = NDArray[np.int64]


def prompt_positions(request: Request, merge_size: int) -> tuple[Positions, int]:
    """[3, prompt_tokens], and what an answer token's index lacks to its position on every axis."""
    positions = np.empty((3, request.prompt_tokens), np.int64)
    index = position = 0
    for item in request.items:
        position = _count_on(positions, index, item.offset, position)
        positions[:, item.offset : item.offset + item.embeds] = position + _grid(item, merge_size)
        index = item.offset + item.embeds
        position += max(_merged(item, merge_size))
    position = _count_on(positions, index, request.prompt_tokens, position)
    return positions, position - request.prompt_tokens


def _count_on(positions: Positions, start: int, end: int, position: int) -> int:
    positions[:, start:end] = np.arange(position, position + end - start)
    return position + end - start


def _merged(item: MultimodalItem, merge_size: int) -> tuple[int, int, int]:
    frames, height, width = item.grid
    return frames, height // merge_size, width // merge_size


def _grid(item: MultimodalItem, merge_size: int) -> Positions:
    """[3, embeds]: frame, row and column of every output row, in the encoder's order."""
    return np.indices(_merged(item, merge_size), np.int64).reshape(3, -1)
