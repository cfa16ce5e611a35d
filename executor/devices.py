"""The device that executes: checked before anything is built on it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from workloads.errors import InputError

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


def device_named(name: str) -> torch.device:
    """`cpu`, `cuda` or `cuda:N`. Raises InputError where there is none of that name here."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: there is no {name!r}; cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device: {name!r} is neither cpu nor cuda")
    if device.type == "cpu" and device.index:
        raise InputError(f"device: there is no {name!r}; cpu has no number")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device: cuda was asked for, and torch finds no CUDA device here; --device cpu runs anywhere")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device: there is no {name}; cuda devices here: {torch.cuda.device_count()}")
    return device


def dtype_named(name: str | None, device: torch.device) -> torch.dtype:
    """By default bfloat16 on CUDA, as it is served, and float32 on CPU, which has few fast bfloat16 kernels."""
    if name is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPES:
        raise InputError(f"dtype: there is no {name!r}; {', '.join(DTYPES)}")
    return DTYPES[name]


def total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(device: torch.device) -> int:
    """What may still be allocated on it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _available() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _available() -> int:
    """Linux knows what could be had besides what is free: the caches of files. 0 elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)


def device_name(device: torch.device) -> str:
    """As its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _cpu_name()


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")
    except OSError:
        return "CPU"
