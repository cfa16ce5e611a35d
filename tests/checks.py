"""The invariants of a serving state, and a state that checks them whenever anything happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from prefix_checks import Shadow, check_prefixes

from policies.completed import Completed
from policies.handover import DecodeState, ItemsArrive, PrefillState
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.prefix_state import CachingState
from policies.request_state import RequestState
from policies.serving import ServingState
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
    away = [blocks for blocks, _ in getattr(state.decodes, "away", {}).values()]  # of those that left for others
    held = [*(r.blocks for r in (*requests, *getattr(state, "coming", ()))), *away]
    owned = [block for blocks in held for block in blocks] + [*state.decodes._unsettled]
    if isinstance(state, CachingState):
        check_prefixes(state, requests, owned)
        owned = [*dict.fromkeys(owned)]
    assert sorted([*owned, *pool.free]) == list(range(1, pool.num_blocks + 1)), "KV blocks are lost or owned twice"
    assert not any(r.blocks for r in state.waiting)
    if isinstance(state, PrefillState):
        assert state.decodes.num_blocks == sum(reserved for _, reserved in state.decodes.away.values())
    if isinstance(state, DecodeState):
        assert state.coming_blocks == sum(r.max_blocks for r in state.coming)
    for r in state.contexts:
        if isinstance(state, CachingState) and not r.blocks:
            continue  # it has not started: what it has computed is in others' blocks
        assert pool.blocks_for(r.num_computed_tokens) <= len(r.blocks) <= pool.blocks_for(r.target)
    for r in state.decodes.members:
        computed = r.num_computed_tokens + state.decodes.steps - r.joined
        assert pool.blocks_for(computed) <= len(r.blocks) <= pool.blocks_for(computed + 1)


def _check_rows(state: ServingState, requests: list[RequestState]) -> None:
    cache = state.cache
    held = [(r, r.holds) for r in (*requests, *getattr(state, "coming", ()))]
    held += getattr(state, "away", {}).items()
    holders = [(entry, r, index) for r, holds in held for index, entry in holds.items()]
    for entry, r, index in holders:
        assert cache.entries.get(entry.key) is entry, "a held entry was evicted"
        assert entry.key == r.keys[index]
        passed = index < r.next_item and r not in getattr(state, "away", ())  # who is away may have got on elsewhere
        assert not passed or getattr(state, "keeps_items", False), "an output is held for nothing"
    assert all(r.held == set(r.holds) for r in requests)
    assert not any(r.holds for r in state.decodes.members)
    assert isinstance(state, ItemsArrive) or not any(r.holds for r in state.waiting)
    flying = [entry for flight in getattr(state, "flights", ()) for entry in flight]
    assert all(cache.entries.get(entry.key) is entry and not entry.ready and not entry.pending for entry in flying)
    for entry in cache:
        assert entry.num_holds == sum(held is entry for held, _, _ in holders) + flying.count(entry)
        assert entry.rows is None or len(entry.rows) == entry.num_rows
    _check_books(state)


def _check_books(state: ServingState) -> None:
    cache = state.cache
    entries = list(cache)
    assert cache.held_rows == sum(e.num_rows for e in entries if e.num_holds)
    assert cache.pending_rows == sum(e.num_rows for e in entries if e.pending)
    assert cache.released_rows == sum(e.num_rows for e in cache.released.values())
    assert set(cache.released.values()) == {e for e in entries if not e.num_holds}
    assert all(e.ready for e in cache.released.values())
    assert not (cache.references and any(e.key[0] == "temporary" for e in cache.released.values()))
    assert cache.keeps_released or not cache.released
    addresses = [row for e in entries if e.rows is not None for row in e.rows.tolist()]
    assert len(set(addresses)) == len(addresses), "two outputs share a row"
    if cache.capacity is not None and not cache.references:
        assert cache.released_rows <= cache.capacity, "more is kept than there is room for"
    elif cache.capacity is not None:
        assert cache.held_rows + cache.released_rows <= cache.capacity
        assert len(addresses) + cache._rows.num_free == cache.capacity, "rows are lost"


def fingerprint(state: ServingState) -> Any:
    """All that a draft may depend on, order included."""
    cache, decodes = state.cache, state.decodes
    fields = (
        "id",
        "order",
        "queued",
        "num_finished_before",
        "num_computed_tokens",
        "num_generated",
        "target",
        "next_item",
        "joined",
        "last_step",
    )
    counts = ("num_encodes", "num_cache_hits", "num_preemptions", "num_overtaken")
    requests = [
        (
            *(getattr(r, name) for name in (*fields, *counts)),
            (*r.blocks, -1, *r.hit),
            tuple((i, e.key) for i, e in r.holds.items()),
        )
        for r in everyone(state)
    ]
    flights = [[e.key for e in flight] for flight in getattr(state, "flights", ())]
    entries = [(e.key, e.num_holds, e.ready, None if e.rows is None else tuple(e.rows)) for e in cache]
    books = (cache.held_rows, cache.pending_rows, cache.released_rows, cache.num_evictions)
    books += (state.num_queued, state.num_finished)
    steps = (decodes.steps, decodes.context_tokens, decodes.num_blocks, decodes.num_crossing())
    return requests, entries, flights, list(cache.released), books, tuple(state.pool.free), steps


def content(plan: IterationPlan) -> Any:
    """A plan as plain numbers, to compare two."""
    lists = (plan.admitted, plan.preempted, plan.attached, plan.charged, plan.reclaimed, plan.encode, plan.prefill)
    lists += (plan.kept_blocks,)
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

    def begin(self, plan: IterationPlan) -> None:
        self._check_budgets(plan)
        self._check_encodes(plan)
        self._check_reclaimed(plan)
        super().begin(plan)
        check(self)
        self._check_prefills(plan)

    def begin_decodes(self, plan: IterationPlan) -> None:
        assert len(self.decodes.members) <= self.max_num_batched_tokens
        super().begin_decodes(plan)

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        self.completing = True
        completed = super().complete(plan, num_iterations, failed)
        self.completing = False
        check(self)
        assert self.cache.references or not self.cache.held_rows, "without references, an output is held in between"
        flying = [entry for flight in getattr(self, "flights", ()) for entry in flight]
        if isinstance(self, ItemsArrive):
            flying += [entry for entries in self.coming.values() for entry in entries]
        for entry in self.cache:
            assert entry.ready or entry.pending or entry in flying, "an output is in flight after its iteration"
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
        cost = sum(self.limits.encoder_cost(r.items[i]) for r, i in plan.encode)
        assert cost <= self.encoder_max_num_tokens or len(plan.encode) == 1  # if it may be larger at all, it is alone
        assert all(tokens > 0 for _, tokens in plan.prefill)
        if not self.limits.chunked_prefill and not self.cuts_prompts:
            assert all(tokens == r.remaining for r, tokens in plan.prefill)
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

    def _check_reclaimed(self, plan: IterationPlan) -> None:
        """Only what is finished, held by one request, and neither read by this iteration nor in part by one before."""
        chunks = dict(plan.prefill)
        for r, index in plan.reclaimed:
            entry = r.holds[index]
            assert entry.ready and entry.num_holds == 1 and r not in plan.preempted
            assert r.items[index].offset >= r.num_computed_tokens + chunks.get(r, 0), (
                "what is being read was taken back"
            )

    def _check_prefills(self, plan: IterationPlan) -> None:
        launched = {r.keys[i] for r, i in plan.encode}
        for r, tokens in plan.prefill:
            end = r.num_computed_tokens + tokens
            for index in range(r.next_item, len(r.items)):
                if r.items[index].offset < end:
                    entry = r.holds.get(index)
                    assert entry is not None, "prefill goes past an item that the request does not hold"
                    now = entry.key in launched and not self.lands_later
                    assert entry.ready or now, "prefill goes past an item that is not ready"


class ShadowedState(CheckedState):
    """Follows what is in every KV block, where requests share them."""

    @cached_property
    def shadow(self) -> Shadow:
        return Shadow()

    def begin(self, plan: IterationPlan) -> None:
        self.shadow.begin(self, plan)
        super().begin(plan)
        self.shadow.begun(self, plan)

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        self.shadow.complete(self, plan)
        return super().complete(plan, num_iterations, failed)


@cache
def checked_type(plain: type[ServingState]) -> type[CheckedState]:
    """That state with every check."""
    checks = ShadowedState if issubclass(plain, CachingState) else CheckedState
    return type(f"Checked{plain.__name__}", (checks, plain), {})


def named_blockers(state: ServingState, policy: Policy, now: int) -> dict[RequestState, str]:
    """The blocker of every request in the engine; asking for it changes nothing."""
    before = fingerprint(state)
    named = blockers(state, policy, now)
    assert fingerprint(state) == before
    assert set(named) == set(everyone(state)), "somebody waits and nobody can say what for"
    assert all(named.values())
    return named


def assert_clean(state: ServingState) -> None:
    """Nobody is left, and nothing of anybody but outputs that are kept for reuse."""
    check(state)
    assert not everyone(state) and not getattr(state, "coming", ()) and not getattr(state, "away", ())
    assert state.pool.num_used == 0 and state.cache.held_rows == 0 and state.cache.pending_rows == 0
    assert state.decodes.context_tokens == 0 and state.decodes.num_blocks == 0
