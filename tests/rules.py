"""Small servers for the tests of the rules: requests and limits from a few numbers, every rule checked as they run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd
import simpy

from policies import Eager, Fcfs, Footprint, HeadOfLine, Unbudgeted
from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.request_state import RequestState
from policies.serving import Completed, ServingState
from sim.backend import Outcome
from sim.engine import Engine
from sim.recorder import Recorder
from sim.result import Run
from sim.samples import WeightedSample
from sim.served import ServedRequest
from sim.stalled import blockers
from workloads.request import MultimodalItem, Request

MS = 1_000_000  # nanoseconds
POLICIES: dict[str, Policy] = {
    policy.kind: policy for policy in (Unbudgeted(), Fcfs(), HeadOfLine(), Eager(), Footprint())
}
BUDGETED = ("fcfs", "head_of_line", "eager", "footprint")
MANY_ITERATIONS = 3000  # more than any of these workloads needs: past it the server goes round in circles


class Sized(NamedTuple):
    """An item by its two costs; `key` None is an item without a content hash, `...` one that nobody else has."""

    encoder_tokens: int
    rows: int
    key: Any = ...
    modality: str = "image"
    breaks: int = 0  # placeholders that are no embeds


def request(
    id: int,
    items: Iterable[tuple[Any, ...]] = (),
    *,
    text: int = 1,
    output: int = 1,
    arrival: int = 0,
    offsets: Sequence[int] | None = None,
) -> Request:
    """Items from the first token on (or at `offsets`), then `text` tokens. Times in nanoseconds."""
    placed, end = [], 0
    for index, values in enumerate(items):
        item = Sized(*values)
        key = f"{id}/{index}" if item.key is ... else item.key
        start, length = offsets[index] if offsets else end, item.rows + item.breaks
        grid, pixels = (1, 1, item.encoder_tokens), 100 * item.encoder_tokens
        costs = (item.encoder_tokens, item.rows, pixels)
        placed.append(MultimodalItem(key, item.modality, grid, start, length, *costs))  # type: ignore[arg-type]
        end = start + length
    return Request(id, arrival, end + text, output, tuple(placed))


def limits(**changes: Any) -> Limits:
    """Room for everything, but for what is changed."""
    roomy = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 10_000,
        "num_kv_blocks": 300,
        "encoder_max_num_items": 1000,
        "encoder_max_num_tokens": 100_000,
        "encoder_cache_rows": 100_000,
        "admission_gate": False,
    }
    return Limits(**(roomy | changes))


# One draft, without an engine


@dataclass
class Desk:
    """A serving state to hand requests to and to draft from, iteration by iteration."""

    policy: str
    limits: Limits
    state: ServingState = field(init=False)

    def __post_init__(self) -> None:
        self.state = CheckedState(self.limits)

    def submit(self, *requests: Request) -> list[RequestState]:
        states = [RequestState(asked) for asked in requests]
        for state in states:
            self.state.submit(state)
        return states

    def builder(self) -> PlanBuilder:
        return PlanBuilder(self.state, 0)

    def draft(self) -> IterationPlan:
        builder = self.builder()
        POLICIES[self.policy].schedule(builder)
        return builder.plan

    def step(self) -> Step:
        """Draft, begin and complete one iteration."""
        plan = self.draft()
        if not plan:
            return Step()
        self.state.begin(plan)
        step = Step.of(plan)
        self.state.complete(plan)
        return step

    def steps(self, most: int = 1000) -> list[Step]:
        """Until nothing can run any more."""
        steps = []
        while (step := self.step()) != Step():
            steps.append(step)
            assert len(steps) < most, "the server goes round in circles"
        return steps


class Step(NamedTuple):
    """What an iteration ran, by request ids."""

    encode: tuple[tuple[int, int], ...] = ()
    prefill: tuple[tuple[int, int], ...] = ()
    decodes: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: IterationPlan) -> Step:
        encode = tuple((r.id, index) for r, index in plan.encode)
        prefill = tuple((r.id, tokens) for r, tokens in plan.prefill)
        decodes = tuple(sorted(r.id for r in plan.decode.members)) if plan.decode is not None else ()
        return cls(encode, prefill, decodes, tuple(r.id for r in plan.preempted))


# The invariants


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
    owned = [block for r in requests for block in r.blocks]
    assert sorted([*owned, *pool.free]) == list(range(1, pool.num_blocks + 1)), "KV blocks are lost or owned twice"
    assert not any(r.blocks for r in state.waiting)
    for r in state.contexts:
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
            tuple(r.blocks),
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
    blocked = {r.id: tuple(why) for r, why in plan.blocked.items()}
    return named, plan.decode is not None, blocked, plan.encoder_tokens, plan.num_prefill_tokens


class CheckedState(ServingState):
    """Checks every plan that is begun, and itself after everything that happens to it."""

    completing = False

    def begin(self, plan: IterationPlan) -> None:
        self._check_budgets(plan)
        self._check_encodes(plan)
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
        assert all(entry.ready or entry.pending for entry in self.cache), "an output is in flight after its iteration"
        return completed

    def abort(self, request: RequestState) -> None:
        super().abort(request)
        if not self.completing:
            check(self)
        assert not request.blocks and not request.holds

    def _check_budgets(self, plan: IterationPlan) -> None:
        decodes = len(set(self.decodes.members) - set(plan.preempted)) if plan.decode is not None else 0
        assert sum(tokens for _, tokens in plan.prefill) + decodes <= self.max_num_batched_tokens
        assert len(plan.encode) <= self.encoder_max_num_items
        assert sum(r.items[i].encoder_tokens for r, i in plan.encode) <= self.encoder_max_num_tokens
        assert all(tokens > 0 for _, tokens in plan.prefill)
        if not self.limits.chunked_prefill:
            assert all(r.num_computed_tokens == 0 and tokens == r.target for r, tokens in plan.prefill)
        if self.limits.capacity == "no_evict":
            assert not plan.preempted

    def _check_encodes(self, plan: IterationPlan) -> None:
        keys = [r.keys[i] for r, i in plan.encode]
        assert len(set(keys)) == len(keys), "an item is encoded twice in an iteration"
        for key in keys:
            entry = self.cache.get(key)
            leaving = sum(key in (e.key for e in r.holds.values()) for r in plan.preempted)
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


class CheckedEngine(Engine):
    """Drafts everything twice and looks whether that changed anything; counts where every request is."""

    state: CheckedState
    recorder: Recorder

    def draft(self, start: int) -> IterationPlan:
        check(self.state)
        before = fingerprint(self.state)
        plan, again = super().draft(start), super().draft(start)
        assert content(plan) == content(again), "the same draft twice gives two plans"
        assert fingerprint(self.state) == before, "drafting changed the state"
        prepared = {r for r in self.recorder.under_way if r.prepared >= 0}
        assert prepared == set(everyone(self.state)), "a request is lost, or left and still there"
        if not plan:
            named_blockers(self.state, self.policy)
        return plan


def named_blockers(state: ServingState, policy: Policy) -> dict[RequestState, str]:
    """The blocker of every request in the engine; asking for it changes nothing."""
    before = fingerprint(state)
    named = blockers(state, policy)
    assert fingerprint(state) == before
    assert set(named) == set(everyone(state)), "somebody waits and nobody can say what for"
    assert all(named.values())
    return named


# Whole runs


@dataclass
class SmallBackend:
    """1 ms for every iteration and a little for what is in it; runs of decodes too. `fails` names keys of items."""

    host: int = 100_000
    compute: int = 900_000
    prefill_token: int = 0
    encode_token: int = 0
    fails: frozenset[Any] = frozenset()
    steps: list[Step] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    num_encodes: int = 0
    most_iterations: int = MANY_ITERATIONS

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: float) -> Outcome:
        assert plan, "an empty plan was launched"
        assert len(self.steps) < self.most_iterations, "the server goes round in circles"
        self.steps.append(Step.of(plan))
        compute = self.compute + self.prefill_token * plan.num_prefill_tokens
        total = self.host + compute
        if not plan.decodes_only or max_iterations == 1 or total >= horizon:
            return self._single(plan, compute)
        count = int(min(max_iterations, -(-horizon // total)))
        return Outcome(self.host, 0, compute, total * count, [total] * count)

    def wait(self, handle: Outcome) -> Outcome:
        return handle

    def _single(self, plan: IterationPlan, compute: int) -> Outcome:
        encode = self.encode_token * plan.encoder_tokens
        keys = {r.keys[i] for r, i in plan.encode} if self.fails & {r.keys[i] for r, i in plan.encode} else set()
        failed = list(dict.fromkeys(r for r, i in (*plan.encode, *plan.attached) if r.keys[i] in keys))
        total = self.host + encode + compute
        return Outcome(self.host, encode, compute, total, failed=failed, reason="out of memory" if failed else "")


class Tables(Run):
    """The tables of a run that had no scenario."""

    def __init__(self, recorder: Recorder, limits: Limits) -> None:
        self._log, self._requests, self._limits = recorder.iterations, recorder.requests, limits

    @property
    def limits(self) -> Limits:
        return self._limits


@dataclass
class Served:
    """A run that is over."""

    state: CheckedState
    policy: Policy
    recorder: Recorder
    requests: dict[int, ServedRequest]
    steps: list[Step]
    verdict: str
    blockers: dict[int, str]

    @cached_property
    def table(self) -> pd.DataFrame:
        return self.tables.requests.set_index("request_id")

    @property
    def iterations(self) -> pd.DataFrame:
        return self.tables.iterations

    @property
    def itl(self) -> WeightedSample:
        return self.tables.itl_sample

    @cached_property
    def tables(self) -> Tables:
        return Tables(self.recorder, self.state.limits)

    @property
    def status(self) -> dict[int, str]:
        return {id: r.status for id, r in self.requests.items()}

    def encoded(self) -> list[tuple[int, int]]:
        return [item for step in self.steps for item in step.encode]


def serve(
    requests: Sequence[Request],
    policy: str,
    limits: Limits,
    *,
    cancels: Mapping[int, int] | None = None,
    backend: SmallBackend | None = None,
    fast_path: bool = True,
) -> Served:
    """Serve the requests at their arrivals, cancel some at their times (ns), and check everything on the way."""
    env, backend = simpy.Environment(0), backend or SmallBackend()
    state, recorder = CheckedState(limits), Recorder()
    engine = CheckedEngine(env, state, POLICIES[policy], backend, recorder, fast_path=fast_path)
    served: dict[int, ServedRequest] = {}
    for asked in requests:
        env.process(_send(env, engine, asked, served))
    for id, time in (cancels or {}).items():
        env.process(_cancel(env, engine, id, time, served))
    env.run()
    stuck = list(recorder.under_way)
    named = named_blockers(state, POLICIES[policy])
    assert set(named) == set(stuck)
    for r in stuck:
        recorder.leave_unfinished(r, "stalled", named[r])
    blocked = {r.id: reason for r, reason in named.items()}
    verdict = "stalled" if stuck else "finished"
    return Served(state, POLICIES[policy], recorder, served, backend.steps, verdict, blocked)


def _send(
    env: simpy.Environment, engine: Engine, asked: Request, served: dict[int, ServedRequest]
) -> Generator[simpy.Event, None, None]:
    yield env.timeout(asked.arrival)
    served[asked.id] = ServedRequest(asked, asked.arrival)
    engine.recorder.arrive(served[asked.id])
    engine.deliver(served[asked.id])


def _cancel(
    env: simpy.Environment, engine: Engine, id: int, time: int, served: dict[int, ServedRequest]
) -> Generator[simpy.Event, None, None]:
    yield env.timeout(time)
    if id in served:
        engine.cancel(served[id], "cancelled")


def assert_clean(state: ServingState) -> None:
    """Nobody is left, and nothing of anybody but outputs that are kept for reuse."""
    check(state)
    assert not everyone(state)
    assert state.pool.num_used == 0 and state.cache.held_rows == 0 and state.cache.pending_rows == 0
    assert state.decodes.context_tokens == 0 and state.decodes.num_blocks == 0
