"""How far vLLM lets a prefill go: up to the first item that cannot be encoded or cached."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.policy import Policy
from policies.request_state import RequestState


class VllmChunks(Policy):
    """Chunks and their items, with vLLM's options under its names (v1/core/sched/scheduler.py)."""

    disable_chunked_mm_input: bool = False  # no chunk ends inside an item
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0  # longest chunk while others are there; 0: any
    num_prefill_lookahead_tokens: Literal[0, 1] = 0  # that a drafter reads ahead of prefill, EAGLE's one
    chunk_alignment: Annotated[int, Field(ge=1, le=1024)] = 1  # tokens; chunks end at multiples, as for Mamba states
    mended: bool = False  # without vLLM's faults: those said below, and that of `evict_at_once`

    def _chunk(self, builder: PlanBuilder, request: RequestState) -> int:
        """Tokens that the request could prefill now, its items taken; 0 and nothing taken where it cannot."""
        tokens = min(self._wanted(builder, request), builder.tokens_left)
        if self.mended:
            tokens = self._encode_up_to(builder, request, self._aligned(builder, request, tokens))
        else:
            tokens = self._aligned(builder, request, self._encode_up_to(builder, request, tokens))
        if tokens and request not in builder.plan.refused:
            return tokens
        builder.unschedule(request)
        return 0

    def _wanted(self, builder: PlanBuilder, request: RequestState) -> int:
        """All its tokens; not so many that others would wait long, if there are others."""
        threshold, state = self.long_prefill_token_threshold, builder.state
        if 0 < threshold < request.remaining and state.num_active + len(state.waiting) > 1:
            return threshold
        return request.remaining

    def _aligned(self, builder: PlanBuilder, request: RequestState, tokens: int) -> int:
        """A chunk that is not the last ends at a multiple, unless chunks may not be as long as that.

        Rounding after an item cut the chunk short left nothing of it, forever (vllm#40707); mended, it comes before.
        """
        most = builder.state.max_num_batched_tokens
        end = request.num_computed_tokens + tokens
        if end < request.target and self.chunk_alignment <= min(most, self.long_prefill_token_threshold or most):
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
            if end > computed and (cut or not self._has(builder, request, index)):
                before = item.offset - computed - ahead
                return max(0, before + ahead if self.mended and before <= 0 else before)
        return tokens

    def _has(self, builder: PlanBuilder, request: RequestState, index: int) -> bool:
        """Whether the item's output is there when the chunk runs: held, found, or encoded in this iteration.

        A content key that comes back with another size fails its request (vllm#57696); mended, it is another key.
        """
        if index not in builder.missing(request):
            return True
        other = None if self.mended else builder.namesake(request.keys[index])
        if other is None:
            return builder.encode(request, index)
        rows = request.items[index].embeds
        builder.refuse(request, f"item {index} has {rows} rows, another of {other[2]} is cached under its content key")
        return False
