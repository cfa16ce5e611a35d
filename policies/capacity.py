"""Which active requests the KV blocks are enough for, this iteration, as TensorRT-LLM's capacity schedulers see it."""

from policies.builder import PlanBuilder
from policies.request_state import RequestState


def fitting(builder: PlanBuilder) -> list[RequestState]:
    """Active requests that may prefill now, in order; the decodes always fit, if need be after preemptions."""
    if builder.state.no_evict:
        return builder.reserved()
    return _most_at_once(builder)


def _most_at_once(builder: PlanBuilder) -> list[RequestState]:
    """Blocks for what is needed now; an older request takes them back from the last started of the younger ones.

    Blocks are kept, and taken back, only for a request that can use them: one whose items are all there. Another may
    encode if there would be room, and while there is none nobody behind it starts.
    """
    needed, held_up, fits = 0, False, []
    while builder.blocks_to_decode > builder.free_blocks:
        builder.preempt(last_started(builder, after=-1)[0])
    for request in [*builder.contexts]:
        if request in builder.plan.preempted or (held_up and not (request.blocks or request.holds)):
            continue
        more, ready = builder.blocks_needed(request, request.remaining), builder.ready(request)
        while ready and _short(builder, needed + more) and (victims := younger(builder, request)):
            builder.preempt(victims[0])
            more = builder.blocks_needed(request, request.remaining)  # more where it was to share the victim's
        if _short(builder, needed + more):
            held_up = True
            continue
        needed += more if ready else 0
        fits.append(request)
    return fits


def younger(builder: PlanBuilder, request: RequestState) -> list[RequestState]:
    """Started requests that came after this one; whoever is admitted in this draft is the youngest of all."""
    return last_started(builder, after=request.order) if request.order >= 0 else []


def _short(builder: PlanBuilder, needed: int) -> bool:
    return needed + builder.blocks_to_decode > builder.free_blocks


def last_started(builder: PlanBuilder, after: int) -> list[RequestState]:
    """Requests that own KV blocks and were admitted later than `after`, last first."""
    state, preempted = builder.state, builder.plan.preempted
    started = [r for r in (*state.contexts, *state.decodes) if r.blocks and r.order > after and r not in preempted]
    return sorted(started, key=lambda r: -r.order)
