"""How many KV blocks a GPU has room for: what the largest iterations leave, found by running them once.

As TensorRT-LLM does it (PR #16051): the encoder's boundary batches are run before there is a KV cache, one of the
largest items and one of as many as may be, and the encoder cache counts on top of their peak.
"""

from __future__ import annotations

import gc
from math import isqrt
from typing import NamedTuple, Protocol

import torch

from executor.graphs import Graphs
from executor.models import LoadedModel
from executor.options import Options
from executor.runner import Runner
from executor.warmup import encode_items, warm_up
from policies.limits import Limits
from policies.units import in_bytes
from sim.scenario import Scenario
from sim.world import resolve
from workloads.errors import InputError
from workloads.models import VisionLanguageModel
from workloads.request import MultimodalItem


class Memory(Protocol):
    """A device's memory, as far as it can be asked."""

    def start(self) -> int:
        """Give back what is not used, and count from here; free bytes."""

    def peak(self) -> int:
        """Most bytes taken from the device at one time since then, beyond what was taken before."""


class CudaMemory:
    """PyTorch's books: what its allocator reserved, fragments included."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0

    def start(self) -> int:
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_reserved(self._device)
        return torch.cuda.mem_get_info(self._device)[0]

    def peak(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device) - self._before


class Room(NamedTuple):
    """What is there for KV blocks."""

    blocks: int
    note: str  # where the figure comes from


def measured_room(
    scenario: Scenario, loaded: LoadedModel, options: Options, max_blocks: int, memory: Memory | None = None
) -> Room:
    """`free_gpu_memory_fraction` of what is left beside weights, encoder rows, graphs and the boundary batches' peak.

    `max_blocks` of the longest request, for the graphs. Raises InputError where nothing is left.
    """
    memory = memory or CudaMemory(loaded.device)
    trial = resolve(_with_one_block(scenario)).scenario
    free = memory.start()
    try:
        _run_boundaries(trial, loaded, options, max_blocks)
    except torch.OutOfMemoryError:
        raise InputError(
            f"the largest iteration does not fit {loaded.device} beside the weights: lower max_num_batched_tokens, "
            "encoder_max_num_tokens or encoder_cache_rows"
        ) from None
    peak = memory.peak() + _unallocated_rows(trial.engine, scenario.model, options)
    memory.start()  # gives the trial's memory back
    return _room(scenario.engine, scenario.model, free - peak, peak, loaded.device)


def _room(limits: Limits, model: VisionLanguageModel, left: int, peak: int, device: torch.device) -> Room:
    fraction = limits.free_gpu_memory_fraction
    blocks = int(fraction * max(left, 0)) // (limits.block_size * model.kv_bytes_per_token)
    if blocks < 1:
        raise InputError(f"no memory left for KV blocks on {device}: the largest iteration takes {in_bytes(peak)}")
    note = (
        f"{fraction:g} of the {in_bytes(left)} that {device} has left beside weights and {in_bytes(peak)} for the "
        "largest iterations, encoder rows and graphs"
    )
    return Room(blocks, note)


def _with_one_block(scenario: Scenario) -> Scenario:
    """Boundary batches need no KV memory of their own: all their pages are the padding page."""
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"num_kv_blocks": 1})})


def _run_boundaries(trial: Scenario, loaded: LoadedModel, options: Options, max_blocks: int) -> None:
    limits, model = trial.engine, trial.model
    runner = Runner(loaded, limits, options)
    wanted = options.graphs or options.pad_queries
    graphs = Graphs(runner, limits, options, max_blocks) if wanted else None
    largest = trial.workload.largest_item(seed=trial.seed, model=model)
    warm_up(runner, limits, largest)
    if largest is not None and (smaller := many_items(limits, model)) is not None:
        encode_items(runner, *smaller)
    if graphs is not None:
        graphs.warm_up()


def many_items(limits: Limits, model: VisionLanguageModel) -> tuple[MultimodalItem, int] | None:
    """The other boundary batch: as many items as an iteration may encode, sharing its tokens; None for just one."""
    tokens, items = limits.encoder_max_num_tokens, limits.encoder_max_num_items
    if not isinstance(tokens, int) or not isinstance(items, int) or items == 1:
        return None
    merge = model.merge_size
    side = max(1, isqrt(tokens // items) // merge) * merge  # patches
    embeds = (side // merge) ** 2
    item = MultimodalItem(
        None, "image", (1, side, side), 1, embeds, side * side, embeds, (side * model.patch_size) ** 2
    )
    return item, max(1, min(items, tokens // item.encoder_tokens))


def _unallocated_rows(limits: Limits, model: VisionLanguageModel, options: Options) -> int:
    """Bytes of the encoder cache where no tensor of rows holds them from the start."""
    rows = limits.encoder_cache_rows
    if options.encoder_storage == "rows" or not isinstance(rows, int):
        return 0
    return rows * model.embedding_row_bytes
