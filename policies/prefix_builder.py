"""The shared KV blocks of a plan in the making: who would hold what, before anybody does."""

from __future__ import annotations

from collections.abc import Iterable

from policies.attempt import Attempt
from policies.builder import PlanBuilder
from policies.plan import CachingPlan
from policies.prefix_state import CachingState
from policies.request_state import RequestState
from policies.serving import ServingState


class CachingBuilder(PlanBuilder):
    """References to KV blocks are counted as they would stand after this draft; the pool itself stays as it is."""

    state: CachingState
    plan: CachingPlan

    def __init__(self, state: ServingState, now: int) -> None:
        super().__init__(state, now)
        self.plan = CachingPlan()
        self._pool = self.state.prefixes.pool
        self._references: dict[int, int] = {}  # that this draft adds to a block, or takes away

    # Questions

    def num_shared(self, request: RequestState) -> int:
        """Blocks of the hit of one who has not started that others hold: attaching them takes no free block."""
        return sum(map(self._is_block_held, request.hit)) if self._may_attach(request) else 0

    def blocks_needed(self, request: RequestState, num_tokens: int) -> int:
        """Nobody starts for no tokens, and so takes no hit."""
        if not num_tokens and self._may_attach(request):
            return 0
        return super().blocks_needed(request, num_tokens) - self.num_shared(request)

    def blocks_to_start(self, request: RequestState) -> int:
        return super().blocks_to_start(request) - self.num_shared(request)

    def reserved(self) -> list[RequestState]:
        """Where requests share blocks, nobody reserves what another holds anyway.

        Whoever has started goes on, as what it needs is kept; of the others, what they may share can leave with its
        owner.
        """
        fits, left = [], self._unreserved_blocks
        for request in self.contexts:
            if not request.blocks and left >= 0:
                left -= self.blocks_to_start(request)
            if request.blocks or left >= 0:
                fits.append(request)
        return fits

    @property
    def unclaimed_blocks(self) -> int:
        if not self.state.no_evict:
            return super().unclaimed_blocks
        return self._unreserved_blocks - sum(self.blocks_to_start(r) for r in self.contexts if not r.blocks)

    @property
    def _unreserved_blocks(self) -> int:
        """Blocks that those who have started will not need up to their last token, each shared one counted once."""
        started = sum(request.max_blocks for request in self.state.contexts if request.blocks)
        return self._pool.num_blocks + self._pool.num_shared - self.state.decodes.num_blocks - started

    def _may_attach(self, request: RequestState) -> bool:
        return bool(request.hit) and request not in self.plan.hits

    def _is_block_held(self, block: int) -> bool:
        return self._pool.refs[block] + self._references.get(block, 0) > 0

    # Verbs

    def attempt(self) -> Attempt:
        return CachingAttempt(self)

    def prefill(self, request: RequestState, num_tokens: int) -> bool:
        """As ever; whoever starts begins with its hit, and has to find only the rest of its blocks."""
        shared = self.num_shared(request)
        self.free_blocks += shared
        if super().prefill(request, num_tokens):
            self._attach(request)
            return True
        self.free_blocks -= shared
        return False

    def keep_blocks(self, request: RequestState, num_tokens: int) -> bool:
        if not super().keep_blocks(request, num_tokens):
            return False
        if num_tokens:
            self._attach(request)
        return True

    def unschedule(self, request: RequestState) -> bool:
        if request in self.plan.hits and any(owner is request for owner, _ in self.plan.prefill):
            self.plan.hits = {other: hit for other, hit in self.plan.hits.items() if other is not request}
            self._refer(request.hit, -1)
        return super().unschedule(request)

    def preempt(self, request: RequestState, *, requeue: bool = False) -> bool:
        """Blocks that others hold, or that this draft lets them attach, do not become free."""
        if not super().preempt(request, requeue=requeue):
            return False
        self._refer(request.blocks, -1)
        self.free_blocks -= sum(map(self._is_block_held, request.blocks))
        return True

    def _attach(self, request: RequestState) -> None:
        if self._may_attach(request):
            self.plan.hits = {**self.plan.hits, request: request.hit}
            self._refer(request.hit, 1)

    def _refer(self, blocks: Iterable[int], change: int) -> None:
        references = self._references
        for block in blocks:
            references[block] = references.get(block, 0) + change


class CachingAttempt(Attempt):
    """Hits that were attached since then are let go of too."""

    def __init__(self, builder: CachingBuilder) -> None:
        super().__init__(builder)
        self._caching = builder
        self._hits = builder.plan.hits
        self._references = builder._references.copy()

    def undo(self) -> None:
        super().undo()
        self._caching.plan.hits = self._hits
        self._caching._references = self._references


def builder_type(state: ServingState) -> type[PlanBuilder]:
    """The builder that plans for such a state."""
    return CachingBuilder if isinstance(state, CachingState) else PlanBuilder
