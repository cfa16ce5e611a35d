"""Digests of plans: equal for equal plans and for no others, however many numbers are hashed at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules import Sized, request

import sim.decisions
from policies.blocks import KVBlockPool
from policies.decodes import DecodeCohort
from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.decisions import Decisions

REQUESTS = [RequestState(request(id, [Sized(1, 1), Sized(1, 1)])) for id in range(3)]
COHORT = DecodeCohort(KVBlockPool(1, 1))
ids = st.lists(st.integers(0, 2), max_size=2, unique=True).map(tuple)
pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=2).map(tuple)
drafts = st.tuples(st.booleans(), pairs, pairs, ids, ids, ids, st.integers(0, 2))
runs = st.lists(drafts, max_size=4)


def planned(draft: tuple) -> IterationPlan:
    decode, prefill, encode, preempted, held_back, requeued, evicted = draft
    plan = IterationPlan(COHORT if decode else None)
    plan.prefill = [(REQUESTS[id], 1 + tokens) for id, tokens in prefill]
    plan.encode = [(REQUESTS[id], index) for id, index in encode]
    if preempted or held_back or requeued or evicted:
        setbacks = plan.set_back()
        setbacks.preempted, setbacks.held_back, setbacks.requeued = (
            [REQUESTS[id] for id in some] for some in (preempted, held_back, requeued)
        )
        setbacks.evicted = [("image", str(number), 1) for number in range(evicted)]
    return plan


def digest(run: list, many: int = 4096) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.decisions, "MANY", many)
        decisions = Decisions()
        for iteration, draft in enumerate(run):
            decisions.add(planned(draft), iteration)
        return decisions.digest


@given(first=runs, second=runs)
def test_digests_are_equal_where_all_plans_are(first: list, second: list) -> None:
    assert (digest(first) == digest(second)) == (first == second)
    assert digest(first) == digest(first)  # of other plans, with the same in them


@given(run=st.lists(drafts, min_size=4, max_size=8), change=st.integers(0, 3), many=st.integers(0, 12))
def test_one_changed_plan_changes_the_digest_however_long_the_run(run: list, change: int, many: int) -> None:
    decode, *rest = run[change]
    other = [*run[:change], (not decode, *rest), *run[change + 1 :]]
    assert digest(run, many) != digest(other, many)


def test_looking_at_a_digest_changes_nothing() -> None:
    looked, not_looked = Decisions(), Decisions()
    for iteration in range(5):
        plan = planned((True, ((0, 1),), (), (), (), (), 0))
        looked.add(plan, iteration)
        assert looked.digest == looked.digest
        not_looked.add(plan, iteration)
    assert looked.digest == not_looked.digest


def test_what_is_requeued_is_not_what_is_evicted() -> None:
    """-1 and -2 have the same hash: as marks they told nothing apart."""
    nothing: tuple = ()
    requeued = (False, nothing, nothing, nothing, nothing, (2,), 0)
    evicted = (False, nothing, nothing, nothing, nothing, nothing, 2)
    preempted = (False, nothing, nothing, (2,), nothing, nothing, 0)
    assert len({digest([draft]) for draft in (requeued, evicted, preempted)}) == 3
