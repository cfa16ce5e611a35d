"""What a live run needs before it starts: the device checked, the model loaded, the scenario resolved for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch

from executor.devices import device_named, dtype_named, free_bytes
from executor.kv_size import Room, measured_room
from executor.models import LoadedModel, load_model
from executor.options import Options
from policies.limits import MAX_BLOCKS
from sim.scenario import Scenario
from sim.world import Resolved, resolve
from workloads.errors import InputError
from workloads.models import VisionLanguageModel
from workloads.request import Request

LOOK_AT = 100_000  # requests, to see which is the longest


class Prepared(NamedTuple):
    """Ready to be replayed."""

    checked: Resolved  # the scenario as it will be executed: the loaded model's shapes, KV blocks as a number
    loaded: LoadedModel


def load_for(scenario: Scenario, options: Options) -> LoadedModel:
    """The model that the options name, or the scenario's. Raises InputError for whatever is wrong with either."""
    device = device_named(options.device)
    torch.set_num_threads(options.threads)
    return load_model(
        options.model or scenario.model.name, device, dtype_named(options.dtype, device), seed=scenario.seed
    )


def prepare(scenario: Scenario, loaded: LoadedModel, options: Options) -> Prepared:
    """The scenario for the model that runs it; several scenarios may share one loaded model."""
    if scenario.engine.encoder_side_stream_max_ahead:
        raise InputError("engine.encoder_side_stream_max_ahead: the executor has no side stream yet, only a simulation")
    if scenario.pools is not None:
        raise InputError("pools: the executor is one engine; several are only simulated")
    executed = scenario.model_copy(update={"model": _executed_shape(scenario.model, loaded)})
    for request in _first_requests(executed):
        _check_items(request, executed.model)
    checked = resolve(executed) if executed.engine.num_kv_blocks else _with_blocks(executed, loaded, options)
    return Prepared(checked, loaded)


def _executed_shape(asked: VisionLanguageModel, loaded: LoadedModel) -> VisionLanguageModel:
    """The loaded model's figures, with the scenario's own pixel limits where the images are cut up alike."""
    shape = loaded.shape
    if asked.factor == shape.factor:
        shape = shape.model_copy(update={"min_pixels": asked.min_pixels, "max_pixels": asked.max_pixels})
    return shape.model_copy(update={"supports_video": asked.supports_video})


def _first_requests(scenario: Scenario) -> Iterator[Request]:
    return itertools.islice(scenario.workload.requests(seed=scenario.seed, model=scenario.model), LOOK_AT)


def _check_items(request: Request, shape: VisionLanguageModel) -> None:
    """A trace keeps the grids of the model that it was written for, which the executed one must understand."""
    merge = shape.merge_size
    for index, item in enumerate(request.items):
        _, height, width = item.grid
        if height % merge or width % merge or item.length != item.embeds:
            raise InputError(f"request {request.id}: item {index}: {shape.name} has no such grid or placeholders")
        if item.embeds * merge**2 != item.encoder_tokens:
            raise InputError(
                f"request {request.id}: item {index}: {item.embeds} embeds, where {shape.name} makes "
                f"{item.encoder_tokens // merge**2}"
            )


def _with_blocks(scenario: Scenario, loaded: LoadedModel, options: Options) -> Resolved:
    """KV blocks that the device has room for, and no more than the requests could ever use."""
    limits, longest = scenario.engine, longest_request(scenario)
    if loaded.device.type == "cuda":
        room = measured_room(scenario, loaded, options, longest)
    else:
        room = _room_on_cpu(scenario, loaded)
    blocks = min(room.blocks, longest * limits.max_num_seqs, MAX_BLOCKS)
    why = room.note if blocks == room.blocks else "what the requests can use"
    checked = resolve(scenario.model_copy(update={"engine": limits.model_copy(update={"num_kv_blocks": blocks})}))
    checked.notes.append(f"num_kv_blocks {blocks:,}: {why}")
    return checked


def _room_on_cpu(scenario: Scenario, loaded: LoadedModel) -> Room:
    """Of what is free now: nothing is run, since there are swap and other programs anyway."""
    limits = scenario.engine
    block_bytes = limits.block_size * scenario.model.kv_bytes_per_token
    blocks = int(limits.free_gpu_memory_fraction * free_bytes(loaded.device)) // block_bytes
    if blocks < 1:
        raise InputError(f"no memory left for KV blocks on {loaded.device}")
    return Room(blocks, f"what {loaded.device} has room for")


def longest_request(scenario: Scenario) -> int:
    """KV blocks that the longest request needs at its end."""
    tokens = (request.prompt_tokens + request.output_tokens for request in _first_requests(scenario))
    return -(-max(tokens, default=1) // scenario.engine.block_size)
