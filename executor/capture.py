"""CUDA graphs: one memory pool for all of them, and how a forward over static buffers becomes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Forward = Callable[[], None]  # reads static buffers and writes one


class Pool(NamedTuple):
    """What `torch.cuda.use_mem_pool` takes; unlike a `torch.cuda.MemPool` it may be forgotten before its graphs."""

    id: Any


class GraphMemory:
    """The pool that all graphs of a run allocate from, one after the other: as large as the largest needs.

    From here on everything runs on the stream that graphs are captured on, since freed memory stays with its stream:
    only so can what runs outside of graphs (`torch.cuda.use_mem_pool(memory.pool)`) take what graphs left.
    """

    def __init__(self, device: torch.device) -> None:
        if torch.cuda.current_stream(device) == torch.cuda.default_stream(device):  # which cannot be captured
            torch.cuda.synchronize(device)
            torch.cuda.set_stream(torch.cuda.Stream(device))
        self.stream = torch.cuda.current_stream(device)
        self.pool = Pool(torch.cuda.graph_pool_handle())

    def capture(self, forward: Forward) -> Forward:
        """What replays it. It must have run before, so that kernels are compiled and algorithms chosen.

        Raises RuntimeError where something in it cannot be captured, or memory runs out.
        """
        torch.cuda.synchronize(self.stream.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.pool.id, self.stream, capture_error_mode="thread_local"):
            forward()
        return graph.replay


def pad_to_power_of_two(size: int, maximum: int) -> int:
    return min(1 << max(size - 1, 0).bit_length(), maximum)


def pad_to_interval(size: int, interval: int, maximum: int) -> int:
    """The next multiple, at least one; `maximum` where there is no interval."""
    return min(max(-(-size // interval), 1) * interval, maximum) if interval > 0 else maximum


def buckets(maximum: int) -> list[int]:
    """Powers of two and the maximum, largest first: whoever comes later fits into what the first one left."""
    sizes = {pad_to_power_of_two(size, maximum) for size in range(1, maximum + 1)}
    return sorted(sizes, reverse=True)


def intervals(interval: int, maximum: int) -> list[int]:
    """All sizes that `pad_to_interval` gives, largest first."""
    sizes = {pad_to_interval(size, interval, maximum) for size in range(1, maximum + 1)}
    return sorted(sizes, reverse=True)
