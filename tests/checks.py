"""The invariants of a serving state, and a state that checks them whenever anything happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefix_checks import Shadow, check_prefixes

from policies.limits import Limits
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.request_state import RequestState
from policies.serving import Completed, QueueKey, ServingState
from sim.stalled import blockers


def everyone(state: ServingState) -> list[RequestState]:
    return [*state.waiting, *state.contexts, *state.decodes.members]


def check(state: ServingState) -> None:
    """Everything that must be true of a serving state at any time."""
    requests = everyone(state)
    assert len(set(requests)) == len(requests), "a request is in two places"
    assert state.num_active <= state.max_num_seqs
    _check_blocks(state, requests)
    _check_rows(state, requests)


def _check_blocks(state: ServingState, requests: list[RequestState]) -> None:
    pool = state.pool
    state.decodes.settle()
    owned = [block for r in requests for block in r.blocks] + [*state.decodes._unsettled]
    if state.prefixes is not None:
        check_prefixes(state, requests, owned)
        owned = [*dict.fromkeys(owned)]
    assert sorted([*owned, *pool.free]) == list(range(1, pool.num_blocks + 1)), "KV blocks are lost or owned twice"
    assert not any(r.blocks for r in state.waiting)
    for r in state.contexts:
        if state.prefixes is not None and not r.blocks:
            continue  # it has not started: what it has computed is in others' blocks
        assert pool.blocks_for(r.num_computed_tokens) <= len(r.blocks) <= pool.blocks_for(r.target)
    for r in state.decodes.members:
        computed = r.num_computed_tokens + state.decodes.steps - r.joined
        assert pool.blocks_for(computed) <= len(r.blocks) <= pool.blocks_for(computed + 1)


def _check_rows(state: ServingState, requests: list[RequestState]) -> None:
    cache = state.cache
    holders = [(entry, r, index) for r in requests for index, entry in r.holds.items()]
    for entry, r, index in holders:
        assert cache.entries.get(entry.key) is entry, "a held entry was evicted"
        assert entry.key == r.keys[index] and index >= r.next_item
    assert not any(r.holds for r in (*state.waiting, *state.decodes.members))
    assert all(r.held == set(r.holds) for r in requests)
    for entry in cache:
        assert entry.num_holds == sum(held is entry for held, _, _ in holders)
        assert entry.rows is None or len(entry.rows) == entry.num_rows
    _check_books(state)


def _check_books(state: ServingState) -> None:
    cache = state.cache
    entries = list(cache)
    assert cache.held_rows == sum(e.num_rows for e in entries if e.num_holds)
    assert cache.pending_rows == sum(e.num_rows for e in entries if e.pending)
    assert cache.released_rows == sum(e.num_rows for e in cache.released.values())
    assert set(cache.released.values()) == {e for e in entries if not e.num_holds}
    assert all(e.ready and e.key[0] != "temporary" for e in cache.released.values())
    assert cache.keeps_released or not cache.released
    addresses = [row for e in entries if e.rows is not None for row in e.rows.tolist()]
    assert len(set(addresses)) == len(addresses), "two outputs share a row"
    if cache.capacity is not None:
        assert cache.held_rows + cache.released_rows <= cache.capacity
        assert len(addresses) + cache._rows.num_free == cache.capacity, "rows are lost"


def fingerprint(state: ServingState) -> Any:
    """All that a draft may depend on, order included."""
    cache, decodes = state.cache, state.decodes
    fields = ("id", "order", "num_computed_tokens", "num_generated", "target", "next_item", "joined", "last_step")
    counts = ("num_encodes", "num_cache_hits", "num_preemptions")
    requests = [
        (
            *(getattr(r, name) for name in (*fields, *counts)),
            (*r.blocks, -1, *r.hit),
            tuple((i, e.key) for i, e in r.holds.items()),
        )
        for r in everyone(state)
    ]
    entries = [(e.key, e.num_holds, e.ready, None if e.rows is None else tuple(e.rows)) for e in cache]
    books = (cache.held_rows, cache.pending_rows, cache.released_rows, cache.num_evictions)
    steps = (decodes.steps, decodes.context_tokens, decodes.num_blocks, decodes.num_crossing)
    return requests, entries, list(cache.released), books, tuple(state.pool.free), steps


def content(plan: IterationPlan) -> Any:
    """A plan as plain numbers, to compare two."""
    lists = (plan.admitted, plan.preempted, plan.attached, plan.charged, plan.encode, plan.prefill)
    named = [[(e[0].id, e[1]) if isinstance(e, tuple) else e.id for e in entries] for entries in lists]
    named += [
        [(r.id, *hit) for r, hit in plan.hits.items()],
        [r.id for r in plan.held_back],
        [r.id for r in plan.requeued],
        [r.id for r in plan.refused],
        [*plan.evicted],
        [*plan.refreshed],
    ]
    blocked = {r.id: tuple(why) for r, why in plan.blocked.items()}
    return named, plan.decode is not None, blocked, plan.encoder_tokens, plan.num_prefill_tokens


class CheckedState(ServingState):
    """Checks every plan that is begun, and itself after everything that happens to it."""

    completing = False
    cuts_prompts = False  # a prompt may be computed in parts without chunked prefill

    def __init__(self, limits: Limits, queue_key: QueueKey | None = None) -> None:
        super().__init__(limits, queue_key)
        self.shadow = Shadow()

    def begin(self, plan: IterationPlan) -> None:
        self._check_budgets(plan)
        self._check_encodes(plan)
        if self.prefixes is not None:
            self.shadow.begin(self, plan)
        super().begin(plan)
        check(self)
        self._check_prefills(plan)
        if self.prefixes is not None:
            self.shadow.begun(self, plan)

    def begin_decodes(self, plan: IterationPlan) -> None:
        assert len(self.decodes.members) <= self.max_num_batched_tokens
        super().begin_decodes(plan)

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        self.completing = True
        if self.prefixes is not None:
            self.shadow.complete(self, plan)
        completed = super().complete(plan, num_iterations, failed)
        self.completing = False
        check(self)
        assert all(entry.ready or entry.pending for entry in self.cache), "an output is in flight after its iteration"
        return completed

    def abort(self, request: RequestState) -> None:
        super().abort(request)
        if not self.completing:
            check(self)
        assert not request.blocks and not request.holds

    def _check_budgets(self, plan: IterationPlan) -> None:
        left_out = {*plan.preempted, *plan.held_back}
        decodes = len(set(self.decodes.members) - left_out) if plan.decode is not None else 0
        assert decodes or plan.decode is None, "a cohort of nobody runs"
        assert sum(tokens for _, tokens in plan.prefill) + decodes <= self.max_num_batched_tokens
        assert len(plan.encode) <= self.encoder_max_num_items
        assert sum(self.limits.encoder_cost(r.items[i]) for r, i in plan.encode) <= self.encoder_max_num_tokens
        assert all(tokens > 0 for _, tokens in plan.prefill)
        if not self.limits.chunked_prefill and not self.cuts_prompts:
            assert all(not r.blocks and tokens == r.remaining for r, tokens in plan.prefill)
        if self.limits.capacity == "no_evict":
            assert not plan.preempted

    def _check_encodes(self, plan: IterationPlan) -> None:
        keys = [r.keys[i] for r, i in plan.encode]
        assert len(set(keys)) == len(keys), "an item is encoded twice in an iteration"
        for key in keys:
            entry = self.cache.get(key)
            leaving = sum(key in (e.key for e in r.holds.values()) for r in plan.preempted)
            leaving = leaving or key in plan.evicted
            assert entry is None or entry.pending or leaving, "a resident item is encoded again"
        for r in {r for r, _ in plan.encode}:
            order = [i for owner, i in plan.encode if owner is r]
            assert order == sorted(order), "items are encoded out of prompt order"

    def _check_prefills(self, plan: IterationPlan) -> None:
        launched = {r.keys[i] for r, i in plan.encode}
        for r, tokens in plan.prefill:
            end = r.num_computed_tokens + tokens
            for index in range(r.next_item, len(r.items)):
                if r.items[index].offset < end:
                    entry = r.holds.get(index)
                    assert entry is not None, "prefill goes past an item that the request does not hold"
                    assert entry.ready or entry.key in launched, "prefill goes past an item that is not ready"


def named_blockers(state: ServingState, policy: Policy) -> dict[RequestState, str]:
    """The blocker of every request in the engine; asking for it changes nothing."""
    before = fingerprint(state)
    named = blockers(state, policy)
    assert fingerprint(state) == before
    assert set(named) == set(everyone(state)), "somebody waits and nobody can say what for"
    assert all(named.values())
    return named


def assert_clean(state: ServingState) -> None:
    """Nobody is left, and nothing of anybody but outputs that are kept for reuse."""
    check(state)
    assert not everyone(state)
    assert state.pool.num_used == 0 and state.cache.held_rows == 0 and state.cache.pending_rows == 0
    assert state.decodes.context_tokens == 0 and state.decodes.num_blocks == 0
