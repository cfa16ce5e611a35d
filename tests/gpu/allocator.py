"""The modelled caching allocator beside PyTorch's own: the same requests in the same order, and what both counted.

`python tests/gpu/allocator.py [--rehearse]`; exit code 1 where a figure differs. Rehearsing, on a CPU, shows only the
model's. Each sequence begins with nothing allocated, so it needs a process of its own and a device to itself.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from common import place, report

from sim import Scenario
from sim.allocator import MIB, AllocatorFigures
from sim.memory_replay import STORAGES, Allocate, Free, MemorySizes, Operation, operations, play
from sim.run import serve
from sim.world import World, resolve

SCENARIO = Path(__file__).parent / "scenarios" / "photos.yaml"
STATS = {
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "peak_inactive_split_bytes": "inactive_split_bytes.all.peak",
    "device_allocations": "num_device_alloc",
    "allocation_retries": "num_alloc_retries",
    "out_of_memory_errors": "num_ooms",
}
STATIC = ("weights", "kv")  # left out: they would fill the device and tell nothing
DEVICE = 2**40  # bytes; more than any has: only those sequences run out of memory that are told to
SMALL_DEVICE = 350 * MIB


def on_device(those: Sequence[Operation], device_bytes: int) -> AllocatorFigures:
    """As `play` of the model; PyTorch may reserve no more than `device_bytes`."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (device_bytes + MIB) / total))  # segments are whole 2 MiB
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_reserved() == 0, "something else is allocated"
    tensors: dict[str | int, torch.Tensor] = {}
    for operation in those:
        if isinstance(operation, Free):
            tensors.pop(operation.name, None)
            continue
        try:
            tensors[operation.name] = torch.empty(operation.num_bytes, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            continue
    stats = torch.cuda.memory_stats()
    return AllocatorFigures(**{name: int(stats[key]) for name, key in STATS.items()})


def encoder_outputs() -> Iterator[tuple[str, list[Operation]]]:
    """Of a simulated run, in both storages."""
    checked = resolve(Scenario.load(SCENARIO, {"measure.allocator": True}))
    world = World(checked.scenario, checked.profile)
    serve(world, [])
    assert world.memory_log is not None
    events, scenario = world.memory_log.events, checked.scenario
    sizes = MemorySizes.of_run(scenario.engine, scenario.model, checked.profile, events)
    for storage in STORAGES:
        yield storage, [one for one in operations(events, sizes, storage) if one.name not in STATIC]


def random_sizes(seed: int, count: int = 2000) -> list[Operation]:
    """From 1 byte to 64 MiB, evenly in their logarithm; a few dozen alive at a time."""
    rng = np.random.default_rng(seed)
    alive: list[int] = []
    those: list[Operation] = []
    for name, size in enumerate(np.exp2(rng.uniform(0, 26, count)).astype(int)):
        those.append(Allocate(name, int(size)))
        alive.append(name)
        while len(alive) > 40 or (alive and rng.random() < 0.45):
            those.append(Free(alive.pop(int(rng.integers(len(alive))))))
    return those


def sequences() -> Iterator[tuple[str, list[Operation], int]]:
    """Name, operations, and how much the device has."""
    for name, those in encoder_outputs():
        yield name, those, DEVICE
    for seed in (1, 2):
        yield f"random-{seed}", random_sizes(seed), DEVICE
    yield "random-3-full", random_sizes(3), SMALL_DEVICE


def main() -> int:
    """The exit code."""
    rehearsal, differing, figures = place(__doc__).rehearsal, [], {}
    for name, those, device_bytes in sequences():
        model = asdict(play(those, device_bytes))
        device = model if rehearsal else asdict(on_device(those, device_bytes))
        figures[name] = {"model": model, "device": None if rehearsal else device}
        differing += [f"{name} {figure}" for figure in model if model[figure] != device[figure]]
    verdict = "not compared" if rehearsal else f"{len(differing)} figures differ {', '.join(differing)}"
    report("allocator", f"{len(figures)} sequences, {verdict}", figures)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
