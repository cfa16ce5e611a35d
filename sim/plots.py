"""All plots of a command's runs, as PNG files: comparisons once, the rest once per variant."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from sim.plot_breakdown import ttft_breakdown
from sim.plot_latencies import latency_cdfs
from sim.plot_requests import MAX_REQUESTS, request_gantt
from sim.plot_stalls import stalls
from sim.plot_style import save
from sim.plot_timeline import iteration_timeline, occupancy
from sim.plotted import PlottedRun, Runs, views

__all__ = [
    "PlottedRun",
    "Runs",
    "iteration_timeline",
    "latency_cdfs",
    "occupancy",
    "request_gantt",
    "stalls",
    "ttft_breakdown",
    "write_plots",
]


def write_plots(runs: Runs, folder: Path) -> list[Path]:
    """Write every plot into `folder` and say where; with several variants, theirs end in `-<label>`."""
    gc.freeze()  # figures are full of cycles; looking for them among everything else took a tenth of the time
    try:
        return [save(fig, folder / f"{name}.png") for name, fig in _figures(runs)]
    finally:
        gc.unfreeze()


def _figures(runs: Runs) -> Iterator[tuple[str, Figure]]:
    yield "latency_cdfs", latency_cdfs(runs)
    yield "ttft_breakdown", ttft_breakdown(runs)
    yield "stalls", stalls(runs)
    for (label, run), suffix in zip(runs, suffixes([label for label, _ in runs]), strict=True):
        for engine, view in views(run):
            yield f"iteration_timeline{suffix}{engine}", iteration_timeline(label, view)
            yield f"occupancy{suffix}{engine}", occupancy(label, view)
        if len(run.requests) <= MAX_REQUESTS:
            yield f"request_gantt{suffix}", request_gantt(label, run)


def suffixes(labels: list[str]) -> list[str]:
    """`-<label>`, safe as a file name; numbered where that makes two alike."""
    if len(labels) == 1:
        return [""]
    names = [re.sub(r"[^\w.-]+", "_", label)[:80] for label in labels]
    return [f"-{name}" if names.count(name) == 1 else f"-{name}-{index}" for index, name in enumerate(names, 1)]
