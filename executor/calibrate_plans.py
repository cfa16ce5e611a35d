"""The shapes of an iteration of a live run, to be timed once more beside it."""

from __future__ import annotations

from executor.calibrate_shapes import Shape
from policies.plan import IterationPlan
from policies.request_state import RequestState


def shapes_of(plan: IterationPlan) -> list[Shape]:
    """Of an iteration's encoder call and its forward, to be asked between `begin` and `complete`."""
    items = tuple(request.items[index].grid for request, index in plan.encode)
    chunks = tuple((tokens, request.num_computed_tokens) for request, tokens in plan.prefill)
    rows = sum(_rows(request, tokens) for request, tokens in plan.prefill)
    contexts = _contexts(plan)
    shapes = [Shape(items=items)] if items else []
    if chunks or contexts:
        shapes.append(Shape(chunks=chunks, contexts=contexts, rows=rows, before=items))
    return shapes


def _rows(request: RequestState, tokens: int) -> int:
    """Encoder outputs that stand in a request's next so many tokens."""
    start, end = request.num_computed_tokens, request.num_computed_tokens + tokens
    return sum(max(0, min(end, item.offset + item.embeds) - max(start, item.offset)) for item in request.items)


def _contexts(plan: IterationPlan) -> tuple[int, ...]:
    decodes = plan.decode
    if decodes is None:
        return ()
    return tuple(request.num_computed_tokens + decodes.steps - request.joined + 1 for request in decodes)
