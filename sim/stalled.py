"""Who waits for what, when nothing can happen any more."""

from policies.builder import PlanBuilder
from policies.encode_only import EncodeState
from policies.plan import Blocked
from policies.policy import Policy
from policies.prefix_builder import builder_type
from policies.request_state import RequestState
from policies.serving import ServingState


def blockers(
    state: ServingState, policy: Policy, now: int = 0, builds: type[PlanBuilder] | None = None
) -> dict[RequestState, str]:
    """For every request in the engine, what it waits for, in one line; asks the policy once more, changes nothing."""
    builder = (builds or builder_type(state))(state, now)
    policy.schedule(builder)
    blocked = builder.plan.blocked
    reasons = {r: _blocked(state, builder, r, blocked[r]) for r in (*builder.contexts, *state.waiting) if r in blocked}
    for request in builder.contexts:  # those whom this draft would admit included
        reasons.setdefault(request, _unblocked(builder, request))
    for request in (*state.contexts, *state.decodes):  # whose blocks would be taken back, and it would not be enough
        reasons.setdefault(request, _no_blocks(builder))
    for request in state.waiting:
        reasons.setdefault(request, _queued(builder, request))
    return reasons


def _queued(builder: PlanBuilder, request: RequestState) -> str:
    if not builder.has_seats:
        return f"waits in the queue: all {builder.state.max_num_seqs} seats are taken"
    if builder.state.limits.admission_gate:
        return "waits in the queue: it, or one before it, could not start encoding yet"
    return (
        f"waits in the queue: it, or one before it, has no KV blocks to start with, "
        f"{request.remaining} tokens to prefill, {builder.free_blocks} blocks free"
    )


def _blocked(state: ServingState, builder: PlanBuilder, request: RequestState, blocked: Blocked) -> str:
    item = request.items[blocked.item]
    if blocked.why in ("items", "tokens"):
        cost = state.limits.encoder_cost(item)
        left = builder.encoder_items_left if blocked.why == "items" else builder.encoder_tokens_left
        return f"waits for encoder {blocked.why}: item {blocked.item} costs {cost}, {left} left"
    others = holders(state, request)
    reserved = f", {builder.reserved_rows} reserved for another" if blocked.why == "reservation" else ""
    return (
        f"waits for {blocked.num_rows} encoder-cache rows for item {blocked.item}: of {state.encoder_cache_rows}, "
        f"{state.cache.held_rows} held by {others}{reserved}"
    )


def _no_blocks(builder: PlanBuilder) -> str:
    return (
        f"waits for KV blocks: the decodes need {builder.blocks_to_decode} to go on, {builder.free_blocks} free, "
        "and nobody's can be taken back"
    )


def holders(state: ServingState, request: RequestState) -> str:
    """Whose encoder-cache rows they are; of those that have left or are coming from other engines too."""
    held = {r: r.holds for r in (*state.contexts, *state.waiting, *getattr(state, "coming", ()))}
    if isinstance(state, EncodeState):
        held |= state.away
    rows = {r: sum(entry.num_rows for entry in holds.values()) for r, holds in held.items() if holds}
    named = [f"{'itself' if r is request else f'request {r.id}'} ({count})" for r, count in rows.items()]
    return ", ".join(named) or "nobody"


def _unblocked(builder: PlanBuilder, request: RequestState) -> str:
    if builder.missing(request) and builder.state.cache.references:
        return "waits for its items, behind a request whose KV blocks are not free"
    if not builder.ready(request):
        return "waits for its items, which are in flight"
    return f"waits for KV blocks: {request.remaining} tokens to prefill, {builder.free_blocks} blocks free"
