"""The sentences that several policies share, each one step of drafting an iteration."""

from collections.abc import Iterable

from policies.builder import PlanBuilder
from policies.request_state import RequestState


def encode_in_prompt_order(builder: PlanBuilder, request: RequestState) -> bool:
    """Encode the request's missing items one after the other, none skipped; whether all of them were taken."""
    return all(builder.encode(request, index) for index in [*builder.missing(request)])


def encode_first_come(builder: PlanBuilder, requests: Iterable[RequestState], *, reserve: bool) -> None:
    """Pack items in order, later requests filling what earlier ones leave.

    With `reserve`, the first request left incomplete keeps the rows that it still misses.
    """
    for request in requests:
        if request.num_items_ahead and not encode_in_prompt_order(builder, request) and reserve:
            builder.reserve(request)


def encode_whole(builder: PlanBuilder, requests: Iterable[RequestState]) -> None:
    """Encode for those whose whole footprint the cache can take, in order; the first other one reserves its rows."""
    for request in requests:
        if builder.charge(request):
            encode_in_prompt_order(builder, request)
        else:
            builder.reserve(request)


def next_chunk(builder: PlanBuilder, request: RequestState) -> int:
    """Tokens that the request would prefill now: as many as the budget has left, or all of them, or none."""
    remaining = request.target - request.num_computed_tokens
    if remaining <= builder.tokens_left:
        return remaining
    return builder.tokens_left if builder.state.limits.chunked_prefill else 0


def prefill_in_order(builder: PlanBuilder, requests: Iterable[RequestState]) -> None:
    """Prefill those whose items are all there until the token budget is spent; nobody overtakes one whom it stops."""
    for request in requests:
        ready = not request.num_items_ahead or builder.ready(request)
        if ready and not builder.prefill(request, next_chunk(builder, request)):
            return
