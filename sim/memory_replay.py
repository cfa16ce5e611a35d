"""What a run's encoder outputs would have done to the device's memory: one tensor an item, or static rows for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from policies.limits import Limits
from sim.allocator import AllocatorFigures, CachingAllocator
from sim.allocator_blocks import Block
from sim.memory import MemoryLedger
from sim.memory_log import EncoderCall, Event, most_rows
from sim.profiles import Profile
from workloads.models import VisionLanguageModel

Storage = Literal["per_item", "rows"]
STORAGES: tuple[Storage, ...] = get_args(Storage)
MEMORY_METRICS = tuple(f"{storage}_{field.name}" for storage in STORAGES for field in fields(AllocatorFigures))


class Allocate(NamedTuple):
    """A tensor comes into being."""

    name: str | int  # an int for the output of that number
    num_bytes: int


class Free(NamedTuple):
    """It goes."""

    name: str | int


Operation = Allocate | Free


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """In bytes, but for `num_rows`."""

    device: int
    weights: int
    kv: int
    encoder_token: int  # transient, of one pre-merger token
    row: int  # of encoder output
    num_rows: int  # of the static tensor

    @classmethod
    def of_run(
        cls, limits: Limits, model: VisionLanguageModel, profile: Profile, events: Sequence[Event]
    ) -> MemorySizes:
        """Of resolved limits. Static rows are as many as its budget, or as the run had at most if that is more.

        They can be more without a budget, or under an engine whose budget is only of what is kept between iterations.
        """
        ledger = MemoryLedger.from_profile(profile)
        assert limits.num_kv_blocks is not None, "resolve the scenario first"
        budget = limits.encoder_cache_rows if isinstance(limits.encoder_cache_rows, int) else 0
        return cls(
            device=ledger.device_bytes,
            weights=ledger.weight_bytes,
            kv=limits.num_kv_blocks * limits.block_size * model.kv_bytes_per_rank(profile.source.gpus),
            encoder_token=ledger.encoder_token_bytes,
            row=model.embedding_row_bytes,
            num_rows=max(budget, most_rows(events)),
        )


def operations(events: Iterable[Event], sizes: MemorySizes, storage: Storage) -> Iterator[Operation]:
    """Weights, KV pool and static rows, one tensor each; then what each encoder call takes and what is forgotten.

    As the executor does it: a call's activations are one tensor here, and what it yields is one until it is copied
    into rows, or into a tensor an item. Operations follow the host's order, also for a side stream.
    """
    yield Allocate("weights", sizes.weights)
    yield Allocate("kv", sizes.kv)
    if storage == "rows" and sizes.num_rows:
        yield Allocate("rows", sizes.num_rows * sizes.row)
    for event in events:
        if isinstance(event, EncoderCall):
            yield from _call(event, sizes, storage)
        elif storage == "per_item":
            yield Free(event.output)


def _call(call: EncoderCall, sizes: MemorySizes, storage: Storage) -> Iterator[Operation]:
    yield Allocate("activations", call.encoder_tokens * sizes.encoder_token)
    yield Allocate("batch", sum(rows for _, rows in call.outputs) * sizes.row)
    yield Free("activations")
    if storage == "per_item":
        for output, rows in call.outputs:
            yield Allocate(output, rows * sizes.row)
    yield Free("batch")


def play(those: Iterable[Operation], device_bytes: int) -> AllocatorFigures:
    """Through the modelled allocator; a tensor that finds no room is counted and left out."""
    allocator = CachingAllocator(device_bytes)
    blocks: dict[str | int, Block] = {}
    for operation in those:
        if isinstance(operation, Allocate):
            block = allocator.allocate(operation.num_bytes)
            if block is not None:
                blocks[operation.name] = block
        elif operation.name in blocks:
            allocator.free(blocks.pop(operation.name))
    return allocator.figures()


def memory_figures(events: Sequence[Event], sizes: MemorySizes) -> dict[Storage, AllocatorFigures]:
    """The same run under both storages."""
    return {storage: play(operations(events, sizes, storage), sizes.device) for storage in STORAGES}


def memory_summary(figures: dict[Storage, AllocatorFigures]) -> dict[str, Any]:
    """As `summary.json` has them."""
    return {f"{storage}_{name}": value for storage, of in figures.items() for name, value in asdict(of).items()}
