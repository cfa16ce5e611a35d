"""Items that no request has, to be encoded for their time, with rows that no cache gave out."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np

from executor.calibrate_shapes import Grid
from policies.encoder_cache import EncoderEntry
from workloads.request import MultimodalItem


def item_of(grid: Grid) -> MultimodalItem:
    """An image or video of that many patches; where it stands in a prompt does not matter here."""
    tokens = prod(grid)
    return MultimodalItem(None, "video" if grid[0] > 1 else "image", grid, 1, tokens // 4, tokens, tokens // 4, 0)


def entries_of(items: list[MultimodalItem]) -> list[EncoderEntry]:
    """Each with rows of its own."""
    firsts = itertools.accumulate((item.embeds for item in items), initial=0)
    return [entry_of(index, first, item.embeds) for index, (first, item) in enumerate(zip(firsts, items, strict=False))]


def entry_of(index: int, first: int, num_rows: int) -> EncoderEntry:
    entry = EncoderEntry(("temporary", -1, index), num_rows)
    entry.rows = np.arange(first, first + num_rows)
    return entry
