"""vLLM's scheduling rules, which its two orders of service share: first come first served, and by priority."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.policy import Policy
from policies.request_state import RequestState
from policies.running import decodes_may_go_first, in_order
from policies.vllm_limits import vllm_limits
from workloads.request import MultimodalItem


class VllmRules(Policy):
    """vLLM 0.32 (v1/core/sched/scheduler.py), without prefix caching; options are named as there."""

    whole: ClassVar[bool] = False

    disable_chunked_mm_input: bool = False  # no chunk ends inside an item
    scheduler_reserve_full_isl: bool = True  # who leaves the queue must have KV blocks for its whole prompt
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0  # longest chunk while others are there; 0: any
    num_prefill_lookahead_tokens: Literal[0, 1] = 0  # that a drafter reads ahead of prefill, EAGLE's one
    chunk_alignment: Annotated[int, Field(ge=1, le=1024)] = 1  # tokens; chunks end at multiples, as for Mamba states
    mended: bool = False  # without the faults: see `_encode_up_to`, `_aligned` and `evict_at_once`

    def resolve(
        self, limits: Limits, *, largest_item: MultimodalItem | None, row_bytes: int
    ) -> tuple[Limits, list[str]]:
        """Encoder budget and cache are embeds, of one size: an iteration's tokens, or the largest item."""
        whole = largest_item if self.disable_chunked_mm_input else None
        return vllm_limits(limits, largest_item=largest_item, row_bytes=row_bytes, whole=whole)

    @abstractmethod
    def _victim(self, running: list[RequestState]) -> RequestState:
        """Whom to preempt where a running request finds no KV block."""

    @abstractmethod
    def _queue(self, builder: PlanBuilder) -> Iterable[RequestState]:
        """Those who wait, in the order in which they may start."""

    def schedule(self, builder: PlanBuilder) -> None:
        if not self.mended:
            builder.evict_at_once()
            builder.plan.lookahead = self.num_prefill_lookahead_tokens
        if decodes_may_go_first(builder):
            builder.decode()
            self._run(builder, builder.contexts)
        else:
            self._run(builder, in_order(builder))
        if not builder.plan.preempted:
            self._start(builder)

    def _run(self, builder: PlanBuilder, running: list[RequestState]) -> None:
        """Those who run, one after the other; an item that is not to be had holds up nobody but its owner."""
        left = [*running]
        for request in running:
            if not builder.tokens_left:
                return
            if request in builder.plan.preempted:
                continue
            decodes = request in builder.state.decodes.members
            tokens = 1 if decodes else self._chunk(builder, request)
            if tokens and not self._find_blocks(builder, request, tokens, left):
                return
            if tokens:
                _ = builder.decode_one(request) if decodes else builder.prefill(request, tokens)

    def _find_blocks(
        self, builder: PlanBuilder, request: RequestState, tokens: int, running: list[RequestState]
    ) -> bool:
        """Preempt until the request's blocks are free, if need be the request itself."""
        while builder.blocks_needed(request, tokens) > builder.free_blocks:
            victim = self._victim(running)
            running.remove(victim)
            builder.preempt(victim, requeue=True)
            if victim is request:
                return False
        return True

    def _start(self, builder: PlanBuilder) -> None:
        """From the queue, until one cannot start."""
        chunked = builder.state.limits.chunked_prefill
        for request in self._queue(builder) if builder.has_seats else ():
            if not (builder.has_seats and builder.tokens_left):
                return
            if self._wanted(builder, request) > builder.tokens_left and not chunked:
                return
            tokens = self._chunk(builder, request)
            reserved = request.remaining if self.scheduler_reserve_full_isl else tokens
            if not tokens or builder.blocks_needed(request, reserved) > builder.free_blocks:
                builder.unschedule(request)
                return
            builder.admit(request)
            builder.prefill(request, tokens)

    def _chunk(self, builder: PlanBuilder, request: RequestState) -> int:
        """Tokens that the request could prefill now, its items taken; 0 and nothing taken where it cannot."""
        tokens = min(self._wanted(builder, request), builder.tokens_left)
        if self.mended:
            tokens = self._encode_up_to(builder, request, self._aligned(request, tokens))
        else:
            tokens = self._aligned(request, self._encode_up_to(builder, request, tokens))
        if not tokens:
            builder.unschedule(request)
        return tokens

    def _wanted(self, builder: PlanBuilder, request: RequestState) -> int:
        """All its tokens; not so many that others would wait long, if there are others."""
        threshold, state = self.long_prefill_token_threshold, builder.state
        if 0 < threshold < request.remaining and state.num_active + len(state.waiting) > 1:
            return threshold
        return request.remaining

    def _aligned(self, request: RequestState, tokens: int) -> int:
        """A chunk that is not the last ends at a multiple.

        Rounding after an item cut the chunk short left nothing of it, forever (vllm#40707); mended, it comes before.
        """
        end = request.num_computed_tokens + tokens
        if end < request.target:
            end -= end % self.chunk_alignment
        return max(0, end - request.num_computed_tokens)

    def _encode_up_to(self, builder: PlanBuilder, request: RequestState, tokens: int) -> int:
        """Take the items that so many tokens, and the lookahead, overlap; the tokens before the first not to be had.

        Stopping the lookahead short of an item, while the one before is kept until prefill is past it by as much, may
        leave no token, forever (vllm-ascend#17195); mended, the lookahead gives way.
        """
        if not request.num_items_ahead:
            return tokens
        computed, ahead = request.num_computed_tokens, self.num_prefill_lookahead_tokens
        for index in range(request.next_item, len(request.items)):
            item = request.items[index]
            end = item.offset + item.length
            if item.offset >= computed + tokens + ahead:
                break
            cut = self.disable_chunked_mm_input and computed < item.offset and computed + tokens < end
            if end > computed and (cut or not _has(builder, request, index)):
                before = item.offset - computed - ahead
                return max(0, before + ahead if self.mended and before <= 0 else before)
        return tokens


def _has(builder: PlanBuilder, request: RequestState, index: int) -> bool:
    """Whether the item's output is there when the chunk runs: held, found, or encoded in this iteration."""
    return index not in builder.missing(request) or builder.encode(request, index)
