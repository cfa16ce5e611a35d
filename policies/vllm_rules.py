"""vLLM's scheduling rules, which its two orders of service share: first come first served, and by priority."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.request_state import RequestState
from policies.running import decodes_may_go_first, in_order
from policies.vllm_chunks import VllmChunks
from policies.vllm_limits import vllm_limits
from workloads.request import MultimodalItem


class VllmRules(VllmChunks):
    """As vLLM 0.32 schedules (v1/core/sched/scheduler.py), without transfers of KV blocks.

    Where prefixes are cached, `Prefixes` says by which rules.
    """

    whole: ClassVar[bool] = False
    apart: ClassVar[bool] = False

    scheduler_reserve_full_isl: bool = True  # who leaves the queue must find KV blocks for its whole prompt

    def resolve(
        self, limits: Limits, *, largest_item: MultimodalItem | None, row_bytes: int
    ) -> tuple[Limits, list[str]]:
        """Encoder budget and cache are embeds, of one size: an iteration's tokens, or the largest item."""
        whole = largest_item if self.disable_chunked_mm_input else None
        return vllm_limits(limits, largest_item=largest_item, row_bytes=row_bytes, whole=whole)

    @abstractmethod
    def _victim(self, running: list[RequestState]) -> RequestState:
        """Whom to preempt where a running request finds no KV block."""

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
        for request in builder.waiting if _has_room(builder) else ():
            if not _has_room(builder):
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


def _has_room(builder: PlanBuilder) -> bool:
    return builder.has_seats and builder.tokens_left > 0
