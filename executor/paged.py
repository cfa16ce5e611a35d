"""Paged keys and values, and what attention needs to know of them for one forward."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from executor.devices import free_bytes
from policies.limits import Limits
from policies.units import in_bytes
from workloads.errors import InputError
from workloads.models import VisionLanguageModel


@dataclass
class Paged:
    """Where a packed batch finds and puts its keys and values; reaches attention as the `paged=` keyword.

    Packed in this order: prefill chunks, then decodes. T tokens of B sequences.
    """

    keys: Tensor  # [layers, pages, block_size, kv_heads, head_dim]; page 0 is for padding
    values: Tensor
    slots: Tensor  # [T] int64: page * block_size + offset of every packed token
    tables: Tensor  # [B, max_blocks] int32 page numbers, 0 past the end
    query_starts: Tensor  # [B + 1] int32, cumulative query lengths
    kv_lens: Tensor  # [B] int32: tokens in the cache, this forward's included; 0 for padding sequences
    query_lens: list[int] = field(default_factory=list)  # host copies for the CPU path; empty where a graph runs it
    host_kv_lens: list[int] = field(default_factory=list)
    num_chunks: int = 0  # the first sequences are prefill chunks; the others are decodes, one token each
    kernel: Any = None  # what the Triton path prepares once a forward
    mask: Tensor | None = None  # [decodes, 1, 1, L] bool, made once a forward by the CPU path

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put this forward's keys and values, [T, kv_heads, head_dim] each, into their slots."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            cache.view(-1, *cache.shape[2:]).index_copy_(0, self.slots, new)


class PagedKV:
    """Static tensors for all layers; block numbers of the scheduler are page numbers."""

    def __init__(self, shape: VisionLanguageModel, limits: Limits, device: torch.device, dtype: torch.dtype) -> None:
        """Raises InputError where the device has no room for them."""
        assert limits.num_kv_blocks is not None, "resolve the number of KV blocks first"
        self.block_size = limits.block_size
        size = (shape.num_layers, limits.num_kv_blocks + 1, limits.block_size, shape.num_kv_heads, shape.head_dim)
        needed, free = 2 * math.prod(size) * dtype.itemsize, free_bytes(device)
        if needed > free:
            raise InputError(
                f"engine.num_kv_blocks: {limits.num_kv_blocks:,} blocks take {in_bytes(needed)}, "
                f"{device} has {in_bytes(free)} free"
            )
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
