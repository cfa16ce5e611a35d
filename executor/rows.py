"""Encoder outputs on the device: one static tensor of rows that the plan addresses, or one tensor an item."""

from __future__ import annotations

from typing import Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from executor.devices import free_bytes
from policies.encoder_cache import EncoderEntry
from policies.units import in_bytes
from workloads.errors import InputError

Piece = tuple[EncoderEntry, int, int]  # rows from .. to .. of one item's output
Storage = Literal["rows", "per_item"]


class EncoderStorage(Protocol):
    """Written when an item was encoded, read when prefill reaches its placeholders."""

    def write(self, entry: EncoderEntry, output: Tensor) -> None:
        """Copy an item's output, [rows, width]: a kept view would keep the whole batch."""

    def read(self, pieces: list[Piece]) -> Tensor:
        """[rows of all pieces, width]."""


class RowStorage:
    """The rows' numbers come with the plan, so nothing here knows who owns what."""

    def __init__(
        self, num_rows: int | None, width: int, device: torch.device, dtype: torch.dtype, *, bounded: bool = True
    ) -> None:
        """`num_rows` None: without a budget it grows as rows are first used. InputError where there is no room.

        Not `bounded`: it grows too, beyond the budget of what is kept, where one iteration reads more than that.
        """
        self._grows = num_rows is None or not bounded
        needed, free = (num_rows or 0) * width * dtype.itemsize, free_bytes(device)
        if needed > free:
            raise InputError(
                f"engine.encoder_cache_rows: {num_rows:,} rows take {in_bytes(needed)}, "
                f"{device} has {in_bytes(free)} free"
            )
        self.rows = torch.zeros((num_rows or 0, width), dtype=dtype, device=device)

    def write(self, entry: EncoderEntry, output: Tensor) -> None:
        assert entry.rows is not None, "rows are given out before the launch"
        if self._grows:
            self._grow(int(entry.rows.max()) + 1)
        self.rows[torch.from_numpy(entry.rows).to(self.rows.device)] = output.to(self.rows.dtype)

    def read(self, pieces: list[Piece]) -> Tensor:
        numbers = np.concatenate([entry.rows[start:end] for entry, start, end in pieces if entry.rows is not None])
        return self.rows[torch.from_numpy(numbers).to(self.rows.device)]

    def _grow(self, size: int) -> None:
        if size > len(self.rows):
            more = max(size, 2 * len(self.rows)) - len(self.rows)
            self.rows = torch.cat([self.rows, self.rows.new_zeros((more, self.rows.shape[1]))])


class ItemStorage:
    """One tensor an item, freed when the scheduler forgets the entry: what engines did before there were rows."""

    def __init__(self) -> None:
        self._outputs: WeakKeyDictionary[EncoderEntry, Tensor] = WeakKeyDictionary()

    def write(self, entry: EncoderEntry, output: Tensor) -> None:
        self._outputs[entry] = output.clone()

    def read(self, pieces: list[Piece]) -> Tensor:
        return torch.cat([self._outputs[entry][start:end] for entry, start, end in pieces])
