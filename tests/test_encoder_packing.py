"""The published packing decisions: what `head_of_line` encodes and whose prefill may begin."""

import json
from pathlib import Path
from typing import Any

import pytest
from rules import Desk, Sized, limits, request

from policies.request_state import RequestState
from policies.sentences import encode_first_come

CASES = json.loads((Path(__file__).parent / "data" / "encoder_packing.json").read_text())["vectors"]


def server(case: dict[str, Any]) -> tuple[Desk, list[RequestState]]:
    """All requests active, with their `encoded` items already held and finished."""
    desk = Desk(
        "head_of_line",
        limits(
            encoder_max_num_items=case["encoder_max_num_items"],
            encoder_max_num_tokens=case["encoder_max_num_tokens"],
            encoder_cache_rows=case["encoder_cache_rows"] or "unbounded",
        ),
    )
    states = desk.submit(*(asked(given) for given in case["requests"]))
    builder = desk.builder()
    for state, given in zip(states, case["requests"], strict=True):
        builder.admit(state)
        for index in given["encoded"]:
            desk_limits = desk.state
            builder.encoder_items_left = desk_limits.encoder_max_num_items
            builder.encoder_tokens_left = desk_limits.encoder_max_num_tokens
            assert builder.encode(state, index)
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    return desk, states


def asked(given: dict[str, Any]) -> Any:
    return request(given["id"], [Sized(*costs) for costs in zip(given["encoder_tokens"], given["rows"], strict=True)])


def selected(plan: Any) -> dict[str, list[int]]:
    chosen: dict[str, list[int]] = {}
    for state, index in plan.encode:
        chosen.setdefault(str(state.id), []).append(index)
    return chosen


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_published_selection(case: dict[str, Any]) -> None:
    desk, states = server(case)
    fitting = [next(s for s in states if s.id == id) for id in case["fitting"]]
    builder = desk.builder()
    builder.attach_hits(builder.contexts)
    encode_first_come(builder, fitting, reserve=True)
    assert selected(builder.plan) == case["selected"]
    assert [s.id for s in fitting if builder.ready(s)] == case["prefill_eligible"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_whole_policy_decides_so(case: dict[str, Any]) -> None:
    """With room for every prompt all requests fit, and whoever is eligible prefills in the same iteration."""
    desk, _ = server(case)
    plan = desk.draft()
    assert selected(plan) == case["selected"]
    assert [r.id for r, _ in plan.prefill] == case["prefill_eligible"]


def test_a_partial_request_resumes_until_it_is_whole() -> None:
    """Costs 600, 500, 400 under 2 items and 1000 tokens are {0}, then {1, 2} and the prefill."""
    desk = Desk("head_of_line", limits(encoder_max_num_items=2, encoder_max_num_tokens=1000))
    desk.submit(request(1, [Sized(600, 1), Sized(500, 1), Sized(400, 1)]))
    first, second = desk.step(), desk.step()
    assert first.encode == ((1, 0),) and not first.prefill
    assert second.encode == ((1, 1), (1, 2)) and second.prefill == ((1, 4),)


def test_no_later_item_is_taken_before_an_earlier_one() -> None:
    """The second item would fit what is left, but the first does not."""
    desk = Desk("fcfs", limits(encoder_max_num_tokens=10))
    desk.submit(request(1, [Sized(6, 1)]), request(2, [Sized(5, 1), Sized(1, 1)]), request(3, [Sized(4, 1)]))
    assert desk.step().encode == ((1, 0), (3, 0))


def test_the_reservation_is_for_the_first_incomplete_request_alone() -> None:
    """Under `fcfs` the last request takes the row that `head_of_line` keeps for the first."""
    waits = [request(1, [Sized(5, 1), Sized(5, 2)]), request(2, [Sized(5, 1)]), request(3, [Sized(1, 1)])]
    encoded = {}
    for policy in ("fcfs", "head_of_line"):
        desk = Desk(policy, limits(encoder_max_num_tokens=6, encoder_cache_rows=3))
        desk.submit(*waits)
        encoded[policy] = desk.step().encode
    assert encoded == {"fcfs": ((1, 0), (3, 0)), "head_of_line": ((1, 0),)}


def test_footprint_keeps_rows_for_the_first_it_cannot_charge() -> None:
    """Else a large request would starve behind small ones that always fit beside each other."""
    desk = Desk("footprint", limits(encoder_cache_rows=6, max_num_batched_tokens=8))
    desk.submit(request(0, [Sized(1, 4)], text=20), request(1, [Sized(1, 5)]), request(2, [Sized(1, 2)]))
    steps = desk.steps()
    assert [step.encode for step in steps if step.encode] == [((0, 0),), ((1, 0),), ((2, 0),)]


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line", "eager", "footprint"])
def test_the_gate_counts_every_item_once(policy: str) -> None:
    """One item an iteration: the second request of one item is not admitted beside the first."""
    desk = Desk(policy, limits(encoder_max_num_items=1, admission_gate=True))
    first, second = desk.submit(request(0, [Sized(1, 1)]), request(1, [Sized(1, 1)]))
    assert desk.draft().admitted == [first]
    desk.step()
    assert desk.draft().admitted == [second]


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line", "eager", "footprint"])
def test_the_least_recently_released_output_goes_first(policy: str) -> None:
    """a is released, then b; a is held again and released; room for c is made of b."""
    desk = Desk(policy, limits(encoder_cache_rows=4))
    for id, key in enumerate("abac"):
        desk.submit(request(id, [Sized(1, 2, key)]))
        desk.step()
    assert [key for _, key, _ in desk.state.cache.released] == ["a", "c"]
    assert desk.state.cache.num_evictions == 1
