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
    if builder.state.limits.capacity == "no_evict":
        return fitting(builder)
    while builder.blocks_to_decode > builder.free_blocks:
        builder.preempt(last_started(builder, after=-1)[0])
    return [*builder.contexts]


def propose(builder: PlanBuilder, requests: Iterable[RequestState], unit_size: int | None) -> Chunks:
    """Chunks in order until the tokens are spent; whoever has no KV blocks for its chunk is passed over.

    They are no more than proposals: the tokens of one whose items then turn out to be missing are nobody's.
    """
    chunks: Chunks = {}
    for request in requests:
        if request in builder.plan.preempted:
            continue
        left = builder.tokens_left - sum(tokens for r, tokens in chunks.items() if r not in builder.plan.preempted)
        chunk = whole_units(builder, request, min(left, request.remaining), unit_size)
        if not chunk:
            break
        if _find_blocks(builder, chunks, request, chunk):
            chunks[request] = chunk
    return {request: chunk for request, chunk in chunks.items() if request not in builder.plan.preempted}


def whole_units(builder: PlanBuilder, request: RequestState, num_tokens: int, unit_size: int | None) -> int:
    """All of the request's remaining tokens, or as many whole units as there are in `num_tokens`."""
    if num_tokens == request.remaining:
        return num_tokens
    limits = builder.state.limits
    unit = min(unit_size or limits.block_size, limits.max_num_batched_tokens)
    return num_tokens // unit * unit if limits.chunked_prefill else 0


def _find_blocks(builder: PlanBuilder, chunks: Chunks, request: RequestState, chunk: int) -> bool:
    """KV blocks for the chunk beside those proposed before; whoever has started takes them from younger requests."""
    started = bool(request.blocks or request.holds) or builder.ready(request)
    while started and _short(builder, {**chunks, request: chunk}) and (victims := younger(builder, request)):
        builder.preempt(victims[0])
    return not _short(builder, {**chunks, request: chunk})


def _short(builder: PlanBuilder, chunks: Chunks) -> bool:
    pool, preempted = builder.state.pool, builder.plan.preempted
    needed = (
        max(0, pool.blocks_for(r.num_computed_tokens + tokens) - len(r.blocks))
        for r, tokens in chunks.items()
        if r not in preempted
    )
    return builder.state.limits.capacity != "no_evict" and sum(needed) > builder.free_blocks
