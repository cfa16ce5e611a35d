"""Out of memory, as it is said on either kind of device."""

from __future__ import annotations

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch has a class for it on CUDA; its CPU allocator raises a RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
