"""What the language model would compute next if all items were there: the chunks that TensorRT-LLM proposes first."""

from collections.abc import Iterable

from policies.builder import PlanBuilder
from policies.capacity import fitting, last_started, younger
from policies.request_state import RequestState

Chunks = dict[RequestState, int]  # tokens that each would compute, in order


def can_start(builder: PlanBuilder) -> list[RequestState]:
    """Whom KV blocks are reserved for; under max_utilization everybody, as blocks are looked for chunk by chunk.

    There the decodes get theirs first, if need be after preemptions.
    """
    if builder.state.no_evict:
        return fitting(builder)
    while builder.blocks_to_decode > builder.free_blocks:
        builder.preempt(last_started(builder, after=-1)[0])
    return [*builder.contexts]


def propose(builder: PlanBuilder, requests: Iterable[RequestState], unit_size: int) -> Chunks:
    """Chunks in order until the tokens are spent, of 0 from there on; without whoever has no KV blocks for it.

    They are no more than proposals: the tokens of one whose items then turn out to be missing are nobody's.
    """
    chunks: Chunks = {}
    left = builder.tokens_left
    for request in requests:
        if request in builder.plan.preempted:
            continue
        chunk = whole_units(builder, request, min(left, request.remaining), unit_size)
        if not _find_blocks(builder, chunks, request, chunk):
            continue
        chunks[request] = chunk
        left = left - chunk if chunk else 0
    return {request: chunk for request, chunk in chunks.items() if request not in builder.plan.preempted}


def whole_units(builder: PlanBuilder, request: RequestState, num_tokens: int, unit_size: int) -> int:
    """All of the request's remaining tokens, or as many whole units as there are in `num_tokens`."""
    if num_tokens == request.remaining:
        return num_tokens
    limits = builder.state.limits
    unit = min(unit_size, limits.max_num_batched_tokens)
    return num_tokens // unit * unit if limits.chunked_prefill else 0


def _find_blocks(builder: PlanBuilder, chunks: Chunks, request: RequestState, chunk: int) -> bool:
    """KV blocks for the chunk beside those proposed before; whoever has started takes them from younger requests.

    One that gets no tokens may begin to encode where there would be blocks for its chunk.
    """
    started = bool(request.blocks or request.holds)
    if not chunk:
        first = min(request.remaining, builder.state.max_num_batched_tokens)
        return started or not _short(builder, {**chunks, request: first})
    while (started or builder.ready(request)) and _short(builder, {**chunks, request: chunk}):
        victims = younger(builder, request)
        if not victims:
            return False
        builder.preempt(victims[0])
    return not _short(builder, {**chunks, request: chunk})


def _short(builder: PlanBuilder, chunks: Chunks) -> bool:
    preempted = builder.plan.preempted
    needed = (builder.blocks_needed(r, tokens) for r, tokens in chunks.items() if r not in preempted)
    return not builder.state.no_evict and sum(needed) > builder.free_blocks
