"""What a run took of the device's memory, by PyTorch's books: how much, how much of it trapped, how often asked."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MemoryFigures:
    """None where there are no books: on a CPU."""

    peak_reserved_bytes: int | None = None  # taken from the device
    peak_allocated_bytes: int | None = None  # of that, in use by tensors
    peak_inactive_split_bytes: int | None = None  # of that, free but trapped in blocks that something else is in
    device_allocations: int | None = None  # calls of cudaMalloc


class MemoryMeter:
    """Figures from when it was made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._allocations = _stat(device, "num_device_alloc")

    def read(self) -> MemoryFigures:
        if self._device.type != "cuda":
            return MemoryFigures()
        return MemoryFigures(
            peak_reserved_bytes=_stat(self._device, "reserved_bytes.all.peak"),
            peak_allocated_bytes=_stat(self._device, "allocated_bytes.all.peak"),
            peak_inactive_split_bytes=_stat(self._device, "inactive_split_bytes.all.peak"),
            device_allocations=_stat(self._device, "num_device_alloc") - self._allocations,
        )


def _stat(device: torch.device, name: str) -> int:
    return int(torch.cuda.memory_stats(device).get(name, 0))
