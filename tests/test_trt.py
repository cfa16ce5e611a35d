"""TensorRT-LLM's schedulers after PR #16051, against the vectors that its own tests publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from rules import Desk, Sized, Step, limits, request
from servers import serve

from policies import TrtChunkDemand, TrtMain
from workloads.request import Request

POLICIES = {"trt_main": TrtMain, "trt_chunk_demand": TrtChunkDemand}
both = pytest.mark.parametrize("policy", POLICIES)


def selected(step: Step) -> dict[int, list[int]]:
    """What an iteration encodes, as the published vectors write it."""
    chosen: dict[int, list[int]] = {}
    for id, index in step.encode:
        chosen.setdefault(id, []).append(index)
    return chosen


# Of the merged scheduler, on KV cache manager V2: blocks of 10 tokens, chunks of 10, one row for 4 encoder tokens


def v2(id: int, prompt: int, rows: Sequence[int] = ()) -> Request:
    return request(id, [Sized(4 * count, count) for count in rows], text=prompt - sum(rows))


def main(kv_capacity: int, max_tokens: int, encoder_tokens: int, encoder_items: int) -> Desk:
    server = limits(
        block_size=10,
        num_kv_blocks=kv_capacity // 10,
        max_num_batched_tokens=max_tokens,
        encoder_max_num_tokens=encoder_tokens,
        encoder_max_num_items=encoder_items,
        encoder_cache_rows=encoder_tokens // 4,
        capacity="max_utilization",
    )
    return Desk(TrtMain(chunk_unit_size=10), server)


def finished(desk: Desk, requests: Sequence[Request], arrivals: dict[int, Request] | None = None) -> dict[int, int]:
    """The pass in which each request's prefill is complete."""
    states, done = desk.submit(*requests), {}
    for number in range(1, 9):
        if arrivals and number in arrivals:
            states += desk.submit(arrivals[number])
        desk.step()
        done |= {r.id: number for r in states if r.num_generated and r.id not in done}
    return done


def test_02_a_partly_encoded_request_is_not_starved_by_an_older_one() -> None:
    """The older's first chunk finds no blocks in pass 1, so 2 fills the cache: then the tokens are 2's before all."""
    desk = main(100, 51, 32, 1)  # one token more than published, for the decode that holds 60 tokens in pass 1
    desk.submit(request(9, text=59, output=2))
    assert [desk.step().prefill for _ in range(2)] == [((9, 50),), ((9, 9),)]
    assert finished(desk, [v2(1, 80, [1]), v2(2, 20, [4, 4]), v2(3, 70)]) == {2: 2, 1: 4, 3: 5}


def test_03_the_encoder_budget_is_spent_in_the_order_of_admission() -> None:
    """2's rows do not fit beside those of the others; while it waits it holds no KV blocks, which 3 needs all."""
    desk = main(80, 60, 12, 2)
    first, second, third = desk.submit(v2(1, 10, [1]), v2(2, 40, [2, 1]), v2(3, 80, [1, 1]))
    done = []
    for _ in range(4):
        assert not (second.blocks or second.holds)
        desk.step()
        done.append([r.id for r in (first, second, third) if r.num_generated])
    assert done == [[1], [1], [1, 3], [1, 2, 3]]


def test_waiting_for_rows_holds_back_no_newer_request_that_needs_none() -> None:
    """1 fills the cache with one item a pass; 2 waits for it, and a text that comes later runs meanwhile."""
    desk = main(1000, 60, 32, 1)
    assert finished(desk, [v2(1, 30, [2, 2, 2, 2]), v2(2, 10, [1])], {2: v2(3, 10)}) == {1: 4, 2: 5, 3: 2}


def test_05_who_lost_the_encoders_slot_keeps_its_blocks() -> None:
    """2 has its rows and waits for the slot in pass 1; decodes take all free blocks in passes 2 and 3."""
    desk = main(110, 60, 12, 1)
    desk.submit(*(request(10 + n, text=9 if n < 2 else 8, output=20) for n in range(5)))
    desk.step()
    first, second = desk.submit(v2(1, 30, [1, 1]), v2(2, 10, [1]))
    assert selected(desk.step()) == {1: [0]} and len(second.blocks) == 1 and not second.num_computed_tokens
    assert len(desk.state.pool.free) == 2
    assert desk.step().encode == ((1, 1),) and first.num_generated and not second.num_generated
    assert len(desk.state.pool.free) == 3  # the two that were free and no more: the first has given back its own
    assert desk.step().encode == ((2, 0),) and second.num_generated


@pytest.mark.parametrize("ready", [False, True])
def test_sharing_an_entry_needs_no_rows_of_its_own(ready: bool) -> None:
    """The cache is full of the one output that both name, held by the younger: the older keeps its place."""
    desk = Desk("trt_main", limits(max_num_batched_tokens=10, encoder_cache_rows=3, encoder_max_num_items=1))
    shared = Sized(12, 3, "shared")
    older, holder = desk.submit(request(1, [shared], text=7), request(2, [shared], text=7))
    builder = desk.builder()
    assert builder.admit(older) and builder.admit(holder) and builder.charge(holder)
    assert not ready or builder.encode(holder, 0)
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    steps = desk.steps()
    assert [dict(step.prefill) for step in steps] == [{1: 10}, {2: 10}]
    assert [owner for step in steps for owner in step.encode] == ([] if ready else [(1, 0)])


def test_27_referenced_outputs_block_others_until_they_are_released() -> None:
    """One row: the holder is ready and not consumed, so nobody else is encoded; then the other is."""
    desk = Desk("trt_main", limits(encoder_cache_rows=1, max_num_batched_tokens=8, num_kv_blocks=4, block_size=4))
    desk.submit(request(1, [Sized(3, 1)], text=10), request(2, [Sized(3, 1)]))
    assert selected(desk.step()) == {1: [0]}
    served = serve([request(1, [Sized(3, 1)]), request(2, [Sized(3, 1)])], "trt_main", limits(encoder_cache_rows=1))
    assert [selected(step) for step in served.steps] == [{1: [0]}, {2: [0]}]


def test_a_started_request_holds_its_whole_footprint() -> None:
    """Costs [5, 5] under 5 tokens and 2 rows: the second row is the head's though it is encoded later."""
    desk = Desk("trt_main", limits(encoder_max_num_tokens=5, encoder_cache_rows=2))
    desk.submit(request(1, [Sized(5, 1)] * 2), request(2, [Sized(3, 1)]))
    first, second = desk.step(), desk.step()
    assert selected(first) == {1: [0]} and not first.prefill
    assert selected(second) == {1: [1]} and [id for id, _ in second.prefill] == [1]


@both
def test_a_shared_item_is_encoded_once_and_both_prefill(policy: str) -> None:
    shared = Sized(4, 1, "stable")
    desk = Desk(policy, limits(encoder_cache_rows=2, encoder_max_num_tokens=8, encoder_max_num_items=2))
    desk.submit(request(1, [shared]), request(2, [shared]))
    step = desk.step()
    assert selected(step) == {1: [0]} and [id for id, _ in step.prefill] == [1, 2]


def test_eager_encodes_for_whom_there_are_no_blocks() -> None:
    for scheduling, encoded in (("DEFAULT", {}), ("EAGER", {2: [0]})):
        policy = TrtMain(encoder_scheduling_policy=scheduling)  # type: ignore[arg-type]
        desk = Desk(policy, limits(num_kv_blocks=2, block_size=4, max_num_batched_tokens=8))
        desk.submit(request(1, text=5, output=4), request(2, [Sized(8, 1)]), request(3))
        assert selected(desk.step()) == encoded


# Of the scheduler that follows the chunks: items of one row at 1, 3, 5, ..., prompts of 2 n + 1 tokens


def demand(id: int, costs: Sequence[int], **more: Any) -> Request:
    return request(id, [Sized(cost, 1) for cost in costs], offsets=[2 * n + 1 for n in range(len(costs))], **more)


def chunked(items: int, tokens: int, rows: int = 1000, chunk: int = 100, **options: Any) -> Desk:
    server = limits(
        encoder_max_num_items=items,
        encoder_max_num_tokens=tokens,
        encoder_cache_rows=rows,
        max_num_batched_tokens=chunk,
        max_num_seqs=2,
    )
    return Desk(TrtChunkDemand(**options), server)


V2 = {"use_kv_cache_manager_v2": True}
EAGER = {"encoder_scheduling_policy": "EAGER"}


def once(desk: Desk, *costs: Sequence[int]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The first iteration: what it encodes, and the chunks."""
    desk.submit(*(demand(id, of_request) for id, of_request in enumerate(costs, 1)))
    step = desk.step()
    return selected(step), dict(step.prefill)


def test_the_published_decision_on_requests_that_exceed_the_budget() -> None:
    """[7, 7] and [3] under 10 tokens, prompts in one piece: 1 keeps nothing; TensorRT-LLM main takes its first item."""
    server = limits(encoder_max_num_items=2, encoder_max_num_tokens=10, chunked_prefill=False)
    encoded = {}
    for policy in (TrtChunkDemand(use_kv_cache_manager_v2=True), TrtMain()):
        desk = Desk(policy, server)
        first, _ = desk.submit(demand(1, [7, 7]), demand(2, [3]))
        step = desk.step()
        encoded[policy.kind] = selected(step)
        assert [id for id, _ in step.prefill] == [2]
        assert bool(first.holds) == (policy.kind == "trt_main")
    assert encoded == {"trt_chunk_demand": {2: [0]}, "trt_main": {1: [0], 2: [0]}}


def test_only_what_the_proposed_chunk_needs() -> None:
    assert once(chunked(1, 5, chunk=3, **V2), [5, 5]) == ({1: [0]}, {1: 3})


def test_a_chunk_ends_before_an_item_that_cannot_be_had() -> None:
    assert once(chunked(1, 5, **V2), [5, 5]) == ({1: [0]}, {1: 3})


def test_whole_requests_while_they_fit_the_budgets() -> None:
    assert once(chunked(2, 2, chunk=3), [1, 1]) == ({1: [0, 1]}, {1: 3})
    assert once(chunked(2, 2, chunk=8), [1, 1], [1, 1, 1]) == ({1: [0, 1]}, {1: 5})


@pytest.mark.parametrize("items, tokens, rows", [(1, 2, 1000), (2, 1, 1000), (2, 2, 1)])
def test_the_chunks_items_where_the_request_exceeds_a_budget_or_the_cache(items: int, tokens: int, rows: int) -> None:
    assert once(chunked(items, tokens, rows, chunk=3), [1, 1]) == ({1: [0]}, {1: 3})


def test_back_to_the_whole_request_once_the_rest_fits() -> None:
    desk = chunked(2, 2, chunk=3)
    desk.submit(demand(1, [1, 1, 1]))
    steps = [desk.step(), desk.step()]
    assert [selected(step) for step in steps] == [{1: [0]}, {1: [1, 2]}]
    assert [dict(step.prefill) for step in steps] == [{1: 3}, {1: 3}]


def test_what_is_not_whole_is_let_go_of() -> None:
    """Two rows are left for the second request's three items, so it holds none of them."""
    desk = chunked(4, 4, rows=3, chunk=9)
    assert once(desk, [1], [1, 1, 1]) == ({1: [0]}, {1: 3})
    assert [len(r.holds) for r in desk.state.contexts] == [0]


def test_without_chunks_items_gather() -> None:
    server = limits(encoder_max_num_items=1, encoder_max_num_tokens=1, chunked_prefill=False)
    desk = Desk("trt_chunk_demand", server)
    desk.submit(demand(1, [1, 1]))
    steps = desk.steps()
    assert [(selected(step), len(step.prefill)) for step in steps] == [({1: [0]}, 0), ({1: [1]}, 1)]


def test_without_chunks_v2_lets_go_of_what_is_incomplete_and_stalls() -> None:
    server = limits(encoder_max_num_items=1, encoder_max_num_tokens=5, chunked_prefill=False)
    stuck = serve([demand(1, [5, 5])], TrtChunkDemand(**V2), server)
    assert stuck.status == {1: "stalled"} and stuck.blockers[1].startswith("waits for encoder items: item 1")
    mended = serve([demand(1, [5, 5])], TrtChunkDemand(mended=True, **V2), server)
    assert mended.status == {1: "finished"}


def test_without_chunks_what_the_cache_never_holds_is_rejected() -> None:
    server = limits(encoder_cache_rows=1)
    asked = [demand(1, [1, 1])]
    assert serve(asked, "trt_chunk_demand", server).status == {1: "finished"}
    whole = serve(asked, "trt_chunk_demand", server.model_copy(update={"chunked_prefill": False}))
    assert whole.status == {1: "rejected"} and "raise encoder_cache_rows" in whole.requests[1].reason


def test_eager_spends_what_is_left_on_items_to_come() -> None:
    assert once(chunked(2, 2, chunk=3, **V2), [1, 1]) == ({1: [0]}, {1: 3})
    assert once(chunked(2, 2, chunk=3, **EAGER), [1, 1]) == ({1: [0, 1]}, {1: 3})


def test_eager_encodes_outside_the_batch_too() -> None:
    policy = TrtChunkDemand(**EAGER)  # type: ignore[arg-type]
    desk = Desk(policy, limits(num_kv_blocks=2, block_size=4))
    desk.submit(request(1, text=5, output=4), demand(2, [8]))
    step = desk.step()
    assert selected(step) == {2: [0]} and [id for id, _ in step.prefill] == [1]


def test_an_item_above_the_token_budget_runs_alone() -> None:
    assert once(chunked(2, 5, **EAGER), [7, 1]) == ({1: [0]}, {1: 3})
    assert once(chunked(2, 5, **V2), [1], [7]) == ({1: [0]}, {1: 3, 2: 1})


def test_a_hit_costs_no_budget() -> None:
    desk = chunked(1, 1)
    shared = Sized(1, 1, "kept")
    desk.submit(request(1, [shared]))
    desk.step()
    desk.submit(request(2, [shared]), request(3, [Sized(1, 1)]))
    step = desk.step()
    assert selected(step) == {3: [0]} and [id for id, _ in step.prefill] == [2, 3]


@pytest.mark.parametrize("ahead", [(0, 1), (1, 0)])
def test_rows_are_taken_back_from_what_nobody_reads_yet(ahead: tuple[int, int]) -> None:
    """One row, with an output ahead of its time in it: the request's own second item, or a younger request's first."""
    desk = chunked(1, 4, rows=1, **V2)
    requests = desk.submit(demand(1, [4, 4]), demand(2, [4]))
    owner, index = requests[ahead[0]], ahead[1]
    builder = desk.builder()
    assert all(map(builder.admit, requests)) and builder.encode(owner, index)
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    plan = desk.draft()
    assert plan.reclaimed == [(owner, index)] and plan.encode == [(requests[0], 0)]
    assert plan.prefill[0] == (requests[0], 3)
    encodes = [item for step in desk.steps() for item in step.encode]
    assert sorted(encodes) == [(1, 0), (1, 1), (2, 0)] and owner.num_encodes == 1 + (index == 0) + 2 * (index == 1)


def test_what_a_chunk_reads_or_has_begun_to_read_is_not_taken_back() -> None:
    """The holder's only row is being read; the newcomer waits and is blocked by rows."""
    desk = chunked(1, 8, rows=1, chunk=4)
    holder, newcomer = desk.submit(request(1, [Sized(3, 1)], text=9), request(2, [Sized(3, 1)]))
    plan = desk.draft()
    assert plan.encode == [(holder, 0)] and not plan.reclaimed
    assert newcomer not in dict(plan.prefill)


def test_a_chunk_cut_to_less_than_a_unit_is_none() -> None:
    """A sibling of 9: units of 4, one item an iteration, two items in the first unit; mended, a part is computed."""
    server = limits(encoder_max_num_items=1, max_num_batched_tokens=8)
    stuck = serve([demand(1, [1, 1])], TrtChunkDemand(chunk_unit_size=4), server)
    assert stuck.status == {1: "stalled"} and "encoder items: item 1" in stuck.blockers[1]
    mended = serve([demand(1, [1, 1])], TrtChunkDemand(chunk_unit_size=4, mended=True), server)
    assert [dict(step.prefill) for step in mended.steps] == [{1: 3}, {1: 2}]


@both
def test_14_who_fits_passes_a_head_that_waits_for_rows(policy: str) -> None:
    """A sibling of sglang#22831: 2 needs rows that 1 holds, and 3 runs beside it."""
    server = limits(encoder_cache_rows=4, max_num_batched_tokens=8, max_num_seqs=4)
    asked = [request(1, [Sized(1, 3)], offsets=[6], text=9), request(2, [Sized(1, 4)]), request(3)]
    served = serve(asked, policy, server)
    first = served.table["first_token"]
    assert first[3] <= first[2]
    assert set(served.status.values()) == {"finished"}
