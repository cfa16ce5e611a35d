"""What a plan does to encoder outputs: hold what is there, charge and encode what is not, release what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policies.encoder_cache import EncoderCache, EncoderEntry
from policies.plan import IterationPlan
from policies.request_state import RequestState

Owners = Iterable[tuple[RequestState, int]]  # requests, each with the index of an item


def hold_early(cache: EncoderCache, plan: IterationPlan) -> list[tuple[RequestState, int]]:
    """Hold the attached outputs that are there, before anything is dropped or evicted; returns those still to come."""
    preempted, evicted = plan.preempted, plan.evicted
    return [(r, i) for r, i in plan.attached if r in preempted or r.keys[i] in evicted or not hold(cache, r, i)]


def hold_items(cache: EncoderCache, plan: IterationPlan, late: Owners) -> None:
    """Charge and encode what the plan says, and hold what `hold_early` left: outputs that come about only now."""
    for request, index in plan.charged:
        hold_or_charge(cache, request, index)
    for request, index in plan.encode:
        hold_or_charge(cache, request, index)
        cache.launch(request.holds[index])
        request.num_encodes += 1
        request.encoded |= {index}
    for request, index in late:
        hold(cache, request, index)


def hold(cache: EncoderCache, request: RequestState, index: int) -> bool:
    """Hold an existing output, once for each item of the request that names it; False where there is none."""
    if index in request.holds:
        return True
    entry = cache.get(request.keys[index])
    if entry is None:
        return False
    cache.hold(entry)
    _keep(request, index, entry)
    return True


def hold_or_charge(cache: EncoderCache, request: RequestState, index: int) -> None:
    if not hold(cache, request, index):
        _keep(request, index, cache.charge(request.keys[index], request.items[index].embeds))


def _keep(request: RequestState, index: int, entry: EncoderEntry) -> None:
    request.holds[index] = entry
    request.held.add(index)


def evict(cache: EncoderCache, plan: IterationPlan) -> None:
    """What the draft has decided about outputs that nobody holds."""
    for key in plan.evicted:
        cache.evict(key)
    for key in plan.refreshed:
        cache.refresh(key)


def encoded(cache: EncoderCache, plan: IterationPlan, failed: Sequence[RequestState]) -> None:
    """Outputs are there; those of failed requests are not, and whoever else charged them may encode them yet."""
    for request, index in plan.encode:
        if request in failed:
            cache.withdraw(request.holds[index])
        else:
            request.holds[index].ready = True


def reclaim(cache: EncoderCache, plan: IterationPlan) -> None:
    """Take outputs back from requests whose prefill has not come to them yet."""
    for request, index in plan.reclaimed:
        _let_go(cache, request, index)
        request.encoded -= {index}


def release_passed(cache: EncoderCache, request: RequestState, lookahead: int) -> None:
    """Let go of the items that prefill has passed by `lookahead` tokens."""
    first = _first_ahead(request, lookahead)
    for index in [index for index in request.held if index < first]:
        _let_go(cache, request, index)
        request.num_cache_hits += index not in request.encoded
    request.num_items_ahead = len(request.items) - first


def count_passed(request: RequestState) -> None:
    """Without references: what prefill has passed is behind it, and all that was read is let go of later."""
    first = _first_ahead(request, 0)
    request.num_cache_hits += sum(index not in request.encoded for index in range(request.next_item, first))
    request.num_items_ahead = len(request.items) - first


def release_used(cache: EncoderCache, plan: IterationPlan) -> None:
    """Let go of all that the iteration read: first what it found, then what it encoded, as the last used goes last."""
    for request, index in (*plan.attached, *plan.encode):
        if index in request.holds:
            _let_go(cache, request, index)


def _first_ahead(request: RequestState, lookahead: int) -> int:
    first = request.next_item
    while first < len(request.items) and _is_passed(request, first, lookahead):
        first += 1
    return first


def _is_passed(request: RequestState, index: int, lookahead: int) -> bool:
    item = request.items[index]
    return item.offset + item.length + lookahead <= request.num_computed_tokens


def _let_go(cache: EncoderCache, request: RequestState, index: int) -> None:
    cache.release(request.holds.pop(index))
    request.held.discard(index)
    if not request.held:
        request.held = set()  # small again, as its order depends on its size


def release_computed(cache: EncoderCache, request: RequestState) -> None:
    """Let go of items whose tokens all came out of the prefix cache."""
    for index in [index for index in request.held if index < request.next_item]:
        _let_go(cache, request, index)


def release_all(cache: EncoderCache, request: RequestState) -> None:
    for index in [*request.held]:
        _let_go(cache, request, index)
