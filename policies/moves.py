"""Requests that change places: between the queue, those who prefill, and the decodes."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from policies.items import release_all
from policies.plan import IterationPlan
from policies.request_state import RequestState

if TYPE_CHECKING:
    from policies.serving import ServingState


def admit(state: ServingState, plan: IterationPlan) -> None:
    for request in plan.admitted:
        if state.waiting[0] is request:
            state.waiting.popleft()
        else:
            _overtake(state, request)
        request.order = state.num_admitted
        state.num_admitted += 1
        state.contexts[request] = None


def _overtake(state: ServingState, request: RequestState) -> None:
    """Out of turn: those before it in the queue remember that one more has passed them."""
    for passed in state.waiting:
        if passed is request:
            break
        passed.num_overtaken += 1
    state.waiting.remove(request)


def preempt(state: ServingState, plan: IterationPlan) -> None:
    """Recompute later: the answer so far joins the prompt, and the request keeps its place in the order."""
    for request in plan.preempted:
        if request in state.decodes.members:
            state.decodes.leave(request)
            state.contexts[request] = None
        state.take_back(request)
        request.num_computed_tokens = 0
        request.num_items_ahead = len(request.items)
        request.target = request.request.prompt_tokens + request.num_generated
        request.encoded = frozenset()
        request.num_preemptions += 1
        request.num_finished_before = state.num_finished
        state.number(request)
    _in_order(state)


def hold_back(state: ServingState, plan: IterationPlan) -> None:
    """Decodes without a token in this iteration are contexts, one token away from their target."""
    for request in plan.held_back:
        state.decodes.leave(request)
        request.target = request.num_computed_tokens + 1
        state.contexts[request] = None
    _in_order(state)


def requeue(state: ServingState, plan: IterationPlan) -> None:
    """Back into the queue, at its head or where its key belongs; who starts again has a new place in the order."""
    for request in plan.requeued:
        del state.contexts[request]
        request.order = -1
        if state.queue_key is None:
            state.waiting.appendleft(request)
        else:
            insort(state.waiting, request, key=state.queue_key)


def give_back(state: ServingState, request: RequestState) -> None:
    state.pool.give(request.blocks)
    if request.holds:
        release_all(state.cache, request)


def _in_order(state: ServingState) -> None:
    state.contexts = dict.fromkeys(sorted(state.contexts, key=lambda r: r.order))
