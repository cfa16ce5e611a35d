"""Running requests in one line: prefilling and decoding ones together, in order of admission."""

from policies.builder import PlanBuilder
from policies.request_state import RequestState


def in_order(builder: PlanBuilder) -> list[RequestState]:
    """All who run, the one admitted first at the front."""
    return sorted([*builder.contexts, *builder.state.decodes.members], key=_order)


def decodes_may_go_first(builder: PlanBuilder) -> bool:
    """Whether running all decodes before any context comes to the same as running everybody in order.

    It does where blocks suffice for everybody, and tokens do or all decodes are older than the contexts: and as it
    saves a look at each decode, it is asked first.
    """
    contexts, members = builder.contexts, builder.state.decodes.members
    blocks = builder.blocks_to_decode
    for request in contexts:
        blocks += builder.blocks_needed(request, min(request.remaining, builder.tokens_left))
    if blocks > builder.free_blocks:
        return False
    if not contexts or len(members) + sum(request.remaining for request in contexts) <= builder.tokens_left:
        return True
    return max(map(_order, members), default=-1) < contexts[0].order


def _order(request: RequestState) -> int:
    return request.order
