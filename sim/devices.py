"""The accelerators whose published timings profiles are made from: memory as CUDA reports it, and their peaks."""

from __future__ import annotations

from typing import Any, NamedTuple

MEBIBYTE = 2**20
REPORTED = "total capacity in torch's out-of-memory messages; sold as"


class SiliconDevice(NamedTuple):
    """One GPU. Peaks are those of aiconfigurator's own descriptions of its systems."""

    folder: str  # of its profiles
    name: str
    mebibytes: int
    memory_source: str
    peak: float  # operations a second, dense bf16
    bandwidth: float  # bytes a second

    def figures(self) -> dict[str, Any]:
        memory = {"value": self.mebibytes * MEBIBYTE, "unit": "bytes", "source": self.memory_source}
        return {"name": self.name, "memory": memory}


DEVICES = {
    "h200_sxm": SiliconDevice(
        "h200",
        "NVIDIA H200 (SXM)",
        143156,
        "143156 MiB (139.80 GiB), the total_memory that CUDA reports; sold as 141 GB",
        989e12,
        4.8e12,
    ),
    "h100_sxm": SiliconDevice(
        "h100", "NVIDIA H100 (SXM, 80 GB)", 81090, f"79.19 GiB, {REPORTED} 80 GB", 989e12, 3.35e12
    ),
    "b200_sxm": SiliconDevice("b200", "NVIDIA B200 (SXM)", 182630, f"178.35 GiB, {REPORTED} 180 GB", 2250e12, 7.7e12),
    "l40s": SiliconDevice("l40s", "NVIDIA L40S", 45455, f"44.39 GiB, {REPORTED} 48 GB", 362.05e12, 0.864e12),
}
