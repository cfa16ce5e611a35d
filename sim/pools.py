"""Several engines: how many of each kind, with what limits, and the link between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from policies.limits import Limits
from sim.link import Link
from sim.profiles import existing_profile, first_problem
from workloads.errors import InputError
from workloads.frozen import Frozen

Kind = Literal["encode", "prefill", "decode"]
KINDS: tuple[Kind, ...] = ("encode", "prefill", "decode")  # in the order in which requests pass them


class Pool(Frozen):
    """Engines that are alike."""

    engines: Annotated[int, Field(ge=1, le=1000)] = 1
    profile: Annotated[str, AfterValidator(existing_profile)] | None = None  # left out: the scenario's
    engine: Limits | None = None  # what is different from the scenario's `engine`


class Pools(Frozen):
    """What no pool is there for, the prefill engines do: without `decode` they decode, without `encode` they encode."""

    prefill: Pool = Pool()
    encode: Pool | None = None
    decode: Pool | None = None
    link: Link | None = None
    router: Literal["round_robin", "least_loaded"] = "round_robin"  # among the engines of a pool

    @model_validator(mode="after")
    def _linked(self) -> Pools:
        if (self.encode or self.decode) and self.link is None:
            raise InputError("what is sent between pools needs a link: {gigabytes_per_second: ..., latency_ms: ...}")
        if self.link is not None and not (self.encode or self.decode):
            raise InputError("link: nothing is sent where there is only a prefill pool")
        return self

    def kinds(self) -> Iterator[tuple[Kind, Pool]]:
        """Those that there are."""
        for kind in KINDS:
            pool: Pool | None = getattr(self, kind)
            if pool is not None:
                yield kind, pool


def limits_of(kind: Kind, pool: Pool, common: Limits) -> Limits:
    """The scenario's limits with the pool's own in their place. Raises InputError for what does not go together.

    Prefixes are cached where prompts are computed.
    """
    own = {} if pool.engine is None else {name: getattr(pool.engine, name) for name in pool.engine.model_fields_set}
    place = f"pools.{kind}.engine"
    try:
        limits = Limits.model_validate({name: getattr(common, name) for name in Limits.model_fields} | own)
    except ValidationError as error:
        raise InputError(f"{place}: {first_problem(error)}") from None
    if limits.encoder_side_stream_max_ahead:
        raise InputError(f"{place}: encoder_side_stream_max_ahead: engines of pools have no side stream yet")
    if kind != "prefill":
        if own.get("enable_prefix_caching"):
            raise InputError(f"{place}.enable_prefix_caching: only prefill engines compute prompts: leave it out")
        limits = limits.model_copy(update={"enable_prefix_caching": False})
    if kind == "decode" and limits.capacity == "max_utilization":
        raise InputError(f"{place}.capacity: a decode engine cannot compute a prompt again: set it to no_evict")
    return limits
