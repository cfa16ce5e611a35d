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


def prefill_in_order(builder: PlanBuilder, requests: Iterable[RequestState]) -> None:
    """Prefill those whose items are all there, in chunks where that is allowed, until the token budget is spent."""
    chunked = builder.state.limits.chunked_prefill
    for request in requests:
        if not builder.tokens_left:
            return
        if builder.ready(request):
            remaining = request.target - request.num_computed_tokens
            tokens = min(remaining, builder.tokens_left) if chunked else remaining
            if not builder.prefill(request, tokens):
                return
