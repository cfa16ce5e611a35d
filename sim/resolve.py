"""Fills in what a scenario leaves out: every budget, cache and KV pool as a number, of one engine or of every pool."""

from __future__ import annotations

from typing import NamedTuple

from policies import POLICIES
from policies.limits import MAX_BLOCKS, Interference, Limits
from policies.units import in_bytes
from sim.blur import check_spread
from sim.front_end import FrontEnd
from sim.memory import MemoryLedger
from sim.pools import Kind, Pool, Pools, limits_of
from sim.profiles import Profile, load_profile
from sim.scenario import Scenario
from workloads.errors import InputError
from workloads.request import MultimodalItem


class Resolved(NamedTuple):
    """A scenario with every default filled in, and what had to be changed, one line each."""

    scenario: Scenario
    profile: Profile
    notes: list[str]


def resolve(scenario: Scenario) -> Resolved:
    """Budgets, cache rows and KV blocks as numbers; a resolved scenario resolves to itself."""
    _check_place(scenario)
    profile, model = load_profile(scenario.profile), scenario.model
    if scenario.simulation.draw is not None:
        check_spread(profile, scenario.profile)
    resolving = Resolving(scenario, scenario.workload.largest_item(seed=scenario.seed, model=model))
    if scenario.pools is None:
        limits, notes = resolving.limits(scenario.engine, profile)
        resolved = scenario.model_copy(update={"engine": limits})
    else:
        pools, notes = resolving.pools(scenario.pools, profile)
        resolved = scenario.model_copy(update={"pools": pools})
    if resolving.largest is not None and scenario.front_end == FrontEnd():
        notes.append("front_end costs nothing: images are prepared in no time")
    if profile.model != model.name:
        notes.append(f"priced as {profile.model}: profile {scenario.profile} was not measured on {model.name}")
    return Resolved(resolved, profile, notes)


class Resolving(NamedTuple):
    """Fills in one engine's limits, or those of every pool."""

    scenario: Scenario
    largest: MultimodalItem | None

    def limits(self, limits: Limits, profile: Profile, kind: Kind | None = None) -> tuple[Limits, list[str]]:
        scenario = self.scenario
        row_bytes = scenario.model.embedding_row_bytes
        limits, notes = scenario.policy.resolve(limits, largest_item=self.largest, row_bytes=row_bytes)
        if limits.num_kv_blocks is None and kind != "encode":
            blocks = _kv_blocks(scenario, limits, profile, encodes=kind != "decode")
            limits = limits.model_copy(update={"num_kv_blocks": blocks})
        if (short := _short_of(scenario, limits, profile)) > 0:
            notes.append(f"num_kv_blocks: the KV pool and the weights take {in_bytes(short)} more than the device has")
        if limits.encoder_side_stream_max_ahead and limits.encoder_side_stream_interference is None:
            shared = _interference(profile)
            limits = limits.model_copy(update={"encoder_side_stream_interference": shared})
            notes.append(f"encoder_side_stream_interference {shared.factor:g}: {shared.source}")
        return limits, [] if kind == "decode" else notes

    def pools(self, pools: Pools, profile: Profile) -> tuple[Pools, list[str]]:
        """Each with all its limits; what two of them have to say alike is said once."""
        changed: dict[str, Pool] = {}
        told: list[str] = []
        for kind, pool in pools.kinds():
            own = load_profile(pool.profile) if pool.profile else profile
            limits, notes = self.limits(limits_of(kind, pool, self.scenario.engine), own, kind)
            changed[kind] = pool.model_copy(update={"engine": limits})
            told += notes
        return pools.model_copy(update=changed), list(dict.fromkeys(told))


def _check_place(scenario: Scenario) -> None:
    """Raises InputError where items are encoded apart and the policy's engine knows no such thing."""
    if scenario.pools is not None and scenario.front_end.event_loop:
        raise InputError("front_end.event_loop: not with pools, whose engines' answers have no one loop to go through")
    if scenario.pools is not None and scenario.measure.allocator:
        raise InputError("measure.allocator: not with pools; it replays the memory of one engine")
    places = {
        "pools": scenario.pools,
        "engine.encoder_side_stream_max_ahead": scenario.engine.encoder_side_stream_max_ahead,
    }
    for place, chosen in places.items():
        if chosen and not scenario.policy.apart:
            others = ", ".join(policy.model_fields["kind"].default for policy in POLICIES if policy.apart)
            raise InputError(
                f"{place}: not under {scenario.policy.kind}, which encodes in its own iterations; under {others}"
            )


def _interference(profile: Profile) -> Interference:
    """What the profile states, or halfway between perfect overlap (1) and taking turns (2)."""
    stated = profile.interference
    if stated is None:
        return Interference(factor=1.5, source="an assumption, halfway between perfect overlap and taking turns")
    return Interference(factor=stated.value, source=stated.source)


def _short_of(scenario: Scenario, limits: Limits, profile: Profile) -> int:
    """Bytes that the device would need more for the weights and the KV pool alone."""
    tokens = (limits.num_kv_blocks or 0) * limits.block_size
    return -MemoryLedger.from_profile(profile).headroom(tokens * scenario.model.kv_bytes_per_rank(profile.source.gpus))


def _kv_blocks(scenario: Scenario, limits: Limits, profile: Profile, *, encodes: bool) -> int:
    """What an engine that profiles its encoder leaves for the KV cache; none did before budgets."""
    model, ledger = scenario.model, MemoryLedger.from_profile(profile)
    tokens, rows = limits.encoder_max_num_tokens, limits.encoder_cache_rows
    per_unit = model.merge_size**2 if limits.encoder_budget_unit == "embeds" else 1
    blocks = ledger.num_kv_blocks(
        limits.free_gpu_memory_fraction,
        limits.block_size,
        model.kv_bytes_per_rank(profile.source.gpus),
        boundary_encoder_tokens=tokens * per_unit if isinstance(tokens, int) and encodes else 0,
        encoder_cache_bytes=rows * model.embedding_row_bytes if isinstance(rows, int) and encodes else 0,
    )
    return min(blocks, MAX_BLOCKS)
