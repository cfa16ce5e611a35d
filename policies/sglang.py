"""SGLang: prompts before answers, the encoder called for whatever the chunks of a batch need."""

from collections.abc import Iterable, Mapping
from heapq import merge
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.feasible import text_never
from policies.limits import Limits
from policies.policy import Policy
from policies.request_state import RequestState
from policies.sentences import next_chunk

CACHE_BYTES = 100 * 2**20  # SGLANG_VLM_CACHE_SIZE_MB


class Sglang(Policy):
    """Fills an iteration with prompts, without regard to what their images cost, and decodes when there are none.

    All images that the batch's chunks touch and the cache does not have are encoded in one call, so decodes wait long
    for a large one. Nobody holds an output between two iterations: one that is evicted, or too large to be kept, is
    encoded again for the next chunk of the same prompt.
    """

    kind: Literal["sglang"] = "sglang"
    source: ClassVar[str] = "SGLang 0.5.23, mm_schedule.py, multimodal_cache.py and schedule_policy.py"
    apart: ClassVar[bool] = False
    fixed: ClassVar[Mapping[str, Any]] = {
        "encoder_max_num_items": "unbounded",
        "encoder_max_num_tokens": "unbounded",
        "admission_gate": False,
        "release": "iteration",
    }
    enable_mixed_chunk: bool = False  # decodes run beside the prompts, within the same tokens
    new_token_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1  # share of running answers' remaining KV blocks that new
    # prompts leave free; the engine lets it fall from 0.7 to this while nobody is retracted (no_evict: all of them)
    skip_blocked: bool = False  # what the engine does not: go on behind a request that has no KV blocks (PR #23152)

    def own_cache_rows(self, limits: Limits, row_bytes: int) -> int:
        return max(1, CACHE_BYTES // row_bytes)

    def why_never(self, limits: Limits, request: RequestState) -> str:
        """No item is too large: what the cache refuses is used and forgotten."""
        return text_never(limits, request)

    def schedule(self, builder: PlanBuilder) -> None:
        if self.enable_mixed_chunk:
            self._decode(builder)
        self._prefill(builder)
        if not (builder.plan.prefill or self.enable_mixed_chunk):
            self._decode(builder)

    def _prefill(self, builder: PlanBuilder) -> None:
        """The chunked request, of which there is one, then whoever has blocks for prompt and answer."""
        promised = self._promised(builder)
        chunked = [r for r in builder.contexts if r.blocks]
        for request in chunked:
            self._chunk(builder, request, min(next_chunk(builder, request), self._computable(builder, request)))
        for request, tokens in builder.plan.prefill:
            promised += request.max_blocks - builder.state.pool.blocks_for(request.num_computed_tokens + tokens)
        if all(builder.completes(request) for request in chunked):
            self._add(builder, self._queue(builder), promised)

    def _add(self, builder: PlanBuilder, queue: Iterable[RequestState], promised: int) -> None:
        for request in queue:
            to_finish = builder.blocks_needed(request, request.max_tokens - request.num_computed_tokens)
            if to_finish > builder.free_blocks - promised:
                if self.skip_blocked:
                    continue
                return
            if request.order < 0 and not builder.has_seats:
                continue  # those that were retracted kept their seats
            chunk = next_chunk(builder, request)
            if not self._chunk(builder, request, chunk):
                return
            if request.order < 0:
                builder.admit(request)
            if not builder.completes(request):
                return
            promised += request.max_blocks - builder.state.pool.blocks_for(request.num_computed_tokens + chunk)

    def _chunk(self, builder: PlanBuilder, request: RequestState, num_tokens: int) -> bool:
        """Compute a chunk, after the encoder was called for the images that it touches."""
        if num_tokens < 1:
            return False
        end = request.num_computed_tokens + num_tokens
        for index in [i for i in builder.missing(request) if request.items[i].offset < end]:
            builder.encode(request, index)
        return builder.prefill(request, num_tokens)

    def _queue(self, builder: PlanBuilder) -> Iterable[RequestState]:
        """First come, first served; to be retracted is to come again."""
        fresh = takewhile(lambda _: builder.has_seats, builder.waiting)
        retracted = [r for r in builder.contexts if not r.blocks]
        return merge(fresh, sorted(retracted, key=lambda r: r.queued), key=lambda r: r.queued)

    def _promised(self, builder: PlanBuilder) -> int:
        """KV blocks that are kept for the answers under way."""
        state, decodes = builder.state, builder.state.decodes
        gone = [r for r in builder.plan.preempted if r in decodes.members]
        taken = state.pool.num_held - sum(len(r.blocks) for r in state.contexts)
        taken += builder.blocks_to_decode if builder.plan.decode is not None else 0
        left = decodes.num_blocks - taken - sum(r.max_blocks - decodes.num_blocks_of(r) for r in gone)
        return left if state.no_evict else int(self.new_token_ratio * left)

    def _computable(self, builder: PlanBuilder, request: RequestState) -> int:
        """Tokens that there are KV blocks for."""
        blocks = len(request.blocks) + builder.free_blocks
        return blocks * builder.state.pool.block_size - request.num_computed_tokens

    def _decode(self, builder: PlanBuilder) -> None:
        """All decodes, after retracting those with the shortest answers so far, of these the longest prompts first."""
        decodes = builder.state.decodes
        if builder.blocks_to_decode > builder.free_blocks:
            lengths = {r: r.num_generated + decodes.steps - r.joined for r in decodes}
            for request in sorted(decodes, key=lambda r: (lengths[r], -r.request.prompt_tokens, -r.order)):
                if builder.blocks_to_decode > builder.free_blocks:
                    builder.preempt(request)
        builder.decode()
