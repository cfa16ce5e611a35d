"""Serving states whose requests start with the KV blocks that the beginnings of their prompts are in already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from policies.completed import Completed
from policies.decodes import DecodeCohort
from policies.handover import EncodedPrefillState, EncodedState, PrefillState
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.prefix_decodes import PrefixDecodes
from policies.prefix_pool import PrefixPool
from policies.prefixes import Prefixes
from policies.request_state import RequestState
from policies.serving import ServingState
from policies.side_stream import SideStreamState


class CachingState(ServingState):
    """Tells the prefix cache what comes, starts, is computed and leaves; the rest goes as without one."""

    keeps_items: ClassVar[bool] = False  # whether outputs that a hit makes superfluous stay until the request starts
    prefixes: Prefixes

    def _new_pool(self, num_blocks: int, block_size: int) -> PrefixPool:
        pool = PrefixPool(num_blocks, block_size)
        self.prefixes = Prefixes(pool, self.cache, keeps_items=self.keeps_items)
        return pool

    def _new_decodes(self) -> DecodeCohort:
        return PrefixDecodes(self.prefixes)

    def submit(self, request: RequestState) -> None:
        super().submit(request)
        self.prefixes.enter(request)

    def begin(self, plan: IterationPlan) -> None:
        self.prefixes.start(plan)
        super().begin(plan)

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        completed = super().complete(plan, num_iterations, failed)
        self.prefixes.refresh()
        return completed

    def _computed(
        self,
        request: RequestState,
        num_tokens: int,
        lookahead: int,
        emitted: list[RequestState],
        finished: list[RequestState],
    ) -> None:
        self.prefixes.computed(request, num_tokens)
        super()._computed(request, num_tokens, lookahead, emitted, finished)

    def take_back(self, request: RequestState) -> None:
        self.prefixes.stop(request)
        super().take_back(request)

    def abort(self, request: RequestState) -> None:
        self.prefixes.leave(request)
        super().abort(request)


class CachingSideStreamState(SideStreamState, CachingState):
    """Of an engine that encodes beside its language model."""


class CachingPrefillState(PrefillState, CachingState):
    """Its requests decode elsewhere; their blocks stay cached when they have been sent."""


class CachingEncodedState(EncodedState, CachingState):
    """What was sent for a request stays with it, should the hit be lost that makes it superfluous."""

    keeps_items = True


class CachingEncodedPrefillState(EncodedPrefillState, CachingState):
    """Both."""

    keeps_items = True


CACHING: dict[type[ServingState], type[ServingState]] = {
    ServingState: CachingState,
    SideStreamState: CachingSideStreamState,
    PrefillState: CachingPrefillState,
    EncodedState: CachingEncodedState,
    EncodedPrefillState: CachingEncodedPrefillState,
}


def state_type(plain: type[ServingState], limits: Limits) -> type[ServingState]:
    """That state, or the one which also caches prefixes where the limits say so."""
    return CACHING[plain] if limits.enable_prefix_caching else plain
