"""The shared KV blocks of a plan in the making: who would hold what, before anybody does."""

from __future__ import annotations

from collections.abc import Iterable

from policies.encoder_draft import EncoderDraft
from policies.prefix_pool import PrefixPool
from policies.request_state import RequestState


class PrefixDraft(EncoderDraft):
    """References to KV blocks are counted as they would stand after this draft; the pool itself stays as it is."""

    _references: dict[int, int] | None = None  # that this draft adds to a block, or takes away

    @property
    def _prefix_pool(self) -> PrefixPool:
        prefixes = self.state.prefixes
        assert prefixes is not None, "only where prefixes are cached"
        return prefixes.pool

    # Questions

    def num_shared(self, request: RequestState) -> int:
        """Blocks of the hit of one who has not started that others hold: attaching them takes no free block."""
        return sum(map(self._is_block_held, request.hit)) if request.hit else 0

    @property
    def unreserved_blocks(self) -> int:
        """Blocks that those who have started will not need up to their last token, each shared one counted once."""
        state, pool = self.state, self._prefix_pool
        started = sum(request.max_blocks for request in state.contexts if request.blocks)
        return pool.num_blocks + pool.num_shared - state.decodes.num_blocks - started

    def _is_block_held(self, block: int) -> bool:
        drafted = self._references.get(block, 0) if self._references else 0
        return self._prefix_pool.refs[block] + drafted > 0

    # What verbs do to them

    def _attach_prefix(self, request: RequestState) -> None:
        """Its prefill begins with its hit."""
        self.plan.hits = {**self.plan.hits, request: request.hit}
        self._refer(request.hit, 1)

    def _detach_prefix(self, request: RequestState) -> None:
        """It does not begin after all."""
        self.plan.hits = {other: hit for other, hit in self.plan.hits.items() if other is not request}
        self._refer(request.hit, -1)

    def _drop_blocks(self, request: RequestState) -> int:
        """One whom this draft preempts holds none of its blocks any more; how many others hold."""
        self._refer(request.blocks, -1)
        return sum(map(self._is_block_held, request.blocks))

    def _refer(self, blocks: Iterable[int], change: int) -> None:
        references = self._references = self._references or {}
        for block in blocks:
            references[block] = references.get(block, 0) + change
