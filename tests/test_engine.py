"""The serving loop: what happens at which time, in which order, and what is left when somebody leaves."""

from __future__ import annotations

from typing import Any

import pytest
from acting import BUDGETED, POLICIES, VLLM, WHOLE
from checks import assert_clean
from rules import MS, Desk, Sized, Step, limits, request
from servers import Served, SmallBackend, serve

from policies.feasible import why_never
from policies.limits import Limits
from policies.request_state import RequestState
from sim import Run, Scenario, run

every_policy = pytest.mark.parametrize("policy", POLICIES)
decodes_beside = pytest.mark.parametrize("policy", [kind for kind in POLICIES if kind != "sglang"])  # beside prompts
whole = pytest.mark.parametrize("policy", WHOLE)
budgeted = pytest.mark.parametrize("policy", BUDGETED)


def prefilled(served: Served) -> list[int]:
    """Ids in the order in which their prefills began."""
    return list(dict.fromkeys(id for step in served.steps for id, _ in step.prefill))


def times(served: Served, column: str) -> dict[int, int]:
    """Of the requests that came so far, in ns."""
    return {int(id): round(value * 1e9) for id, value in served.table[column].dropna().items()}  # type: ignore[arg-type]


# Order and time


@every_policy
def test_who_comes_first_is_served_first(policy: str) -> None:
    """Whatever the ids are."""
    asked = [request(id, arrival=when * MS // 10) for id, when in ((5, 1), (2, 2), (9, 3), (1, 4))]
    served = serve([request(0, text=10), *asked], policy, limits(max_num_seqs=1))
    assert prefilled(served) == [0, 5, 2, 9, 1]


@every_policy
def test_at_one_time_the_lower_id_is_first(policy: str) -> None:
    """In whichever order they were sent."""
    asked = [request(id, arrival=3 * MS) for id in (4, 1, 3, 2)]
    served = serve(asked, policy, limits(max_num_seqs=1))
    assert prefilled(served) == [1, 2, 3, 4]
    assert times(served, "first_token") == {id: (3 + id) * MS for id in (1, 2, 3, 4)}


@every_policy
def test_an_idle_server_starts_at_once(policy: str) -> None:
    served = serve([request(0, arrival=12_345)], policy, limits())
    assert times(served, "admitted") == {0: 12_345} and times(served, "first_token") == {0: 12_345 + MS}


@decodes_beside
@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("early, started", [(0, 3 * MS), (1, 3 * MS), (-1, 4 * MS)])
def test_who_arrives_as_an_iteration_ends_is_in_the_next(
    policy: str, fast_path: bool, early: int, started: int
) -> None:
    """Iterations end at 1, 2, 3, ... ms; a nanosecond later is an iteration later."""
    asked = [request(0, output=10), request(1, arrival=3 * MS - early)]
    served = serve(asked, policy, limits(), fast_path=fast_path)
    assert times(served, "admitted")[1] == started
    assert times(served, "finish") == {0: 10 * MS, 1: started + MS}


@decodes_beside
@pytest.mark.parametrize("fast_path", [True, False])
def test_what_happens_during_an_iteration_waits_for_its_end(policy: str, fast_path: bool) -> None:
    """An arrival and a cancellation in the middle of one: the iteration completes as it was launched."""
    asked = [request(0, output=100), request(1, output=100), request(2, arrival=5 * MS + 1, output=2)]
    served = serve(asked, policy, limits(), cancels={1: 7 * MS + 500_000}, fast_path=fast_path)
    assert times(served, "finish") == {0: 100 * MS, 1: 8 * MS, 2: 8 * MS}
    assert served.table.loc[1, "output_tokens"] == 8 and served.status[1] == "cancelled"


@whole
def test_decodes_go_on_while_others_prefill(policy: str) -> None:
    """One token an iteration each, chunked prefills beside them (encoding alone makes an iteration too)."""
    asked = [request(0, output=8), request(1, [Sized(1, 2)] * 2, text=6, arrival=MS)]
    served = serve(asked, policy, limits(max_num_batched_tokens=8, encoder_max_num_items=1))
    assert times(served, "finish")[0] == 8 * MS
    if policy == "unbudgeted":  # limits() bounds it here, like the others
        return
    assert served.steps[1] == Step(encode=((1, 0),), decodes=(0,))
    assert served.steps[2] == Step(encode=((1, 1),), prefill=((1, 7),), decodes=(0,))
    assert served.steps[3] == Step(prefill=((1, 3),), decodes=(0,))


@pytest.mark.parametrize("policy", VLLM)
def test_a_chunk_ends_before_the_item_that_is_not_to_be_had(policy: str) -> None:
    """The cache has rows for one item: the second is encoded once the first is read and can be evicted."""
    asked = [request(0, output=8), request(1, [Sized(1, 2)] * 2, text=6, arrival=MS)]
    served = serve(asked, policy, limits(max_num_batched_tokens=8, encoder_cache_rows=2))
    assert served.steps[1] == Step(encode=((1, 0),), prefill=((1, 2),), decodes=(0,))
    assert served.steps[2] == Step(encode=((1, 1),), prefill=((1, 7),), decodes=(0,))
    assert served.steps[3] == Step(prefill=((1, 1),), decodes=(0,))


@whole
def test_an_iteration_with_nothing_but_encoding_is_one(policy: str) -> None:
    served = serve([request(0, [Sized(1, 1)] * 3)], policy, limits(encoder_max_num_items=1))
    assert [len(step.prefill) for step in served.steps] == [0, 0, 1]
    assert times(served, "first_token") == {0: 3 * MS}


@pytest.mark.parametrize("policy", [*WHOLE, *VLLM, "trt_chunk_demand"])
def test_a_large_prompt_is_not_overtaken(policy: str) -> None:
    """Without chunks it waits until the decodes leave it all tokens, and so does everybody behind it."""
    asked = [request(0, output=5), request(1, text=10, arrival=MS), request(2, arrival=MS)]
    served = serve(asked, policy, limits(max_num_batched_tokens=10, max_num_seqs=4, chunked_prefill=False))
    assert times(served, "first_token") == {0: MS, 1: 6 * MS, 2: 7 * MS}


@whole
def test_kv_blocks_are_reserved_to_completion(policy: str) -> None:
    """Ten blocks of one token: 1 + 6 - 1 = 6 for the first, so the second (5) waits for all of its answer.

    So does the third, which would fit, unless the policy lets it pass.
    """
    asked = [request(0, output=6), request(1, text=5), request(2, text=2)]
    served = serve(asked, policy, limits(block_size=1, num_kv_blocks=10))
    assert times(served, "first_token") == {0: MS, 1: 7 * MS, 2: MS if policy == "bounded_bypass" else 7 * MS}


@pytest.mark.parametrize("policy", [*WHOLE, *VLLM, "trt_chunk_demand"])
def test_blocks_go_back_to_the_older_and_the_younger_starts_over(policy: str) -> None:
    """Eight blocks: 0 needs 2 + 6 - 1 = 7 of them in the end, 1 needs 5 and gives its own back when they run out."""
    asked = [request(0, text=2, output=6), request(1, text=2, output=4, priority=1)]
    served = serve(asked, policy, limits(block_size=1, num_kv_blocks=8, capacity="max_utilization"))
    assert [step.preempted for step in served.steps if step.preempted] == [(1,)]
    assert served.table["num_preemptions"].to_dict() == {0: 0, 1: 1}
    assert times(served, "finish")[0] == 6 * MS
    assert served.table["output_tokens"].to_dict() == {0: 6, 1: 4}
    assert times(served, "first_token") == {0: MS, 1: MS}


# Leaving


STAGES = {  # when request 1 is cancelled, and how many tokens it has by then
    "queue": (MS // 2, 0),
    "encoding": (int(3.5 * MS), 0),
    "prefill": (int(5.5 * MS), 0),
    "decode": (int(7.5 * MS), 2),
}


@budgeted
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("release", ["progressive", "prompt_end"])
def test_who_gives_up_leaves_nothing_behind(policy: str, stage: str, release: str) -> None:
    """One seat, free at 3 ms. 1 encodes until 5 ms, prefills 6 + 6 + 3 tokens from 4 to 7 ms, then decodes."""
    server = limits(
        max_num_seqs=1,
        max_num_batched_tokens=6,
        num_kv_blocks=18,
        block_size=1,
        encoder_max_num_items=1,
        encoder_cache_rows=8,
        release=release,
    )
    asked = [request(0, output=3), request(1, [Sized(1, 4)] * 2, text=7, output=4), request(2, [Sized(1, 4)] * 2)]
    at, tokens = STAGES[stage]
    served = serve(asked, policy, server, cancels={1: at})
    assert served.status == {0: "finished", 1: "cancelled", 2: "finished"}
    assert served.table.loc[1, "output_tokens"] == tokens
    assert times(served, "finish")[1] == -(-at // MS) * MS
    assert_clean(served.state)
    assert served.requests[1].num_computed_tokens == {"prefill": 12, "decode": 16}.get(stage, 0)


@every_policy
def test_a_cancelled_decode_leaves_the_cohort_to_the_others(policy: str) -> None:
    asked = [request(id, text=id + 1, output=20) for id in range(4)]
    served = serve(asked, policy, limits(block_size=2, num_kv_blocks=60), cancels={1: 5 * MS, 2: 9 * MS + 1})
    assert served.table["output_tokens"].to_dict() == {0: 20, 1: 5, 2: 10, 3: 20}
    assert times(served, "finish") == {0: 20 * MS, 1: 5 * MS, 2: 10 * MS, 3: 20 * MS}
    assert_clean(served.state)


@every_policy
def test_giving_up_twice_or_too_late_changes_nothing(policy: str) -> None:
    served = serve([request(0, output=3), request(1)], policy, limits(), cancels={0: 3 * MS, 1: 50 * MS})
    assert served.status == {0: "finished", 1: "finished"}
    assert times(served, "finish") == {0: 3 * MS, 1: MS}


@budgeted
def test_a_hold_of_someone_who_left_does_not_keep_others_out(policy: str) -> None:
    """Two hold the same output; it stays while the second needs it, and then makes room."""
    same = Sized(1, 4, "same")
    asked = [request(0, [same], text=20), request(1, [same], text=20), request(2, [Sized(1, 4)], arrival=MS)]
    server = limits(max_num_batched_tokens=10, max_num_seqs=3, encoder_cache_rows=4, release="prompt_end")
    served = serve(asked, policy, server, cancels={0: MS})
    assert served.status == {0: "cancelled", 1: "finished", 2: "finished"}
    assert len(served.encoded()) == 2
    assert_clean(served.state)


@pytest.mark.parametrize("policy", [*WHOLE, *VLLM, "trt_chunk_demand"])
def test_what_a_preempted_request_attached_to_is_not_lost_for_the_others(policy: str) -> None:
    """1 holds an output that is not kept after its release; in the draft that preempts 1, 2 attaches to it."""
    asked = [
        request(0, output=14),
        request(1, [Sized(1, 1, "k")], offsets=[11], priority=1),
        request(2, [Sized(1, 1, "k")], arrival=10 * MS + MS // 2),
    ]
    server = limits(
        max_num_batched_tokens=4,
        max_num_seqs=4,
        block_size=1,
        num_kv_blocks=14,
        capacity="max_utilization",
        encoder_cache_reuse=False,
    )
    served = serve(asked, policy, server)
    assert set(served.status.values()) == {"finished"}
    assert served.table.loc[1, "num_preemptions"] >= 1


# Who can never be served


@pytest.mark.parametrize(
    "changes, asked, knobs",
    [
        ({"num_kv_blocks": 4, "block_size": 4}, request(0, text=16, output=2), "num_kv_blocks"),
        ({"encoder_cache_rows": 64}, request(0, [Sized(1, 65)]), "encoder_cache_rows"),
        ({"encoder_cache_rows": 64}, request(0, [Sized(1, 33)] * 2), "encoder_cache_rows"),
        ({"encoder_max_num_tokens": 8}, request(0, [Sized(9, 1)]), "encoder_max_num_tokens"),
        ({"max_num_batched_tokens": 20, "chunked_prefill": False}, request(0, text=21), "max_num_batched_tokens"),
    ],
    ids=["KV pool", "item", "footprint", "encoder tokens", "prompt"],
)
@budgeted
def test_who_can_never_be_served_is_told_which_knob_to_raise(
    policy: str, changes: dict[str, Any], asked: Any, knobs: str
) -> None:
    """And everybody else is served."""
    served = serve([asked, request(1)], policy, limits(**changes))
    assert served.status == {0: "rejected", 1: "finished"}
    reason = served.table.loc[0, "reason"]
    assert f"raise {knobs}" in reason and "\n" not in reason
    assert times(served, "finish")[0] == 0


def test_the_limits_of_what_can_be_served_are_sharp() -> None:
    """One token, row or block less is enough."""
    tight = limits(
        num_kv_blocks=4, block_size=4, max_num_batched_tokens=15, chunked_prefill=False, encoder_cache_rows=8
    )
    fits = [
        request(0, text=15, output=2),
        request(1, text=1, output=16),
        request(2, [Sized(1, 4)] * 2),
        request(3, [Sized(1, 5, "same")] * 2, text=1),
    ]
    assert [why_never(tight, RequestState(asked)) for asked in fits] == [""] * 4
    served = serve(fits, "head_of_line", tight)
    assert set(served.status.values()) == {"finished"}
    never = [request(0, text=15, output=3), request(1, text=16), request(2, [Sized(1, 4), Sized(1, 5)])]
    assert all(why_never(tight, RequestState(asked)) for asked in never)


@budgeted
def test_a_preempted_answer_must_fit_an_iteration_where_prompts_are_not_chunked(policy: str) -> None:
    """Recompute takes prompt and answer so far at once, so a server that preempts must be able to."""
    whole = {"chunked_prefill": False, "max_num_batched_tokens": 12}
    asked = [request(0, text=8, output=6), request(1, text=8, output=5)]
    evicting = serve(asked, policy, limits(**whole, capacity="max_utilization"))
    assert evicting.status == {0: "rejected", 1: "finished"}
    assert serve(asked, policy, limits(**whole)).status == {0: "finished", 1: "finished"}


# Budgets as resolved


def test_the_token_budget_is_raised_to_the_largest_item() -> None:
    """Items are never split. The number of items is never raised."""
    largest = request(0, [Sized(5000, 1)]).items[0]
    given = Limits(encoder_max_num_tokens=4096, encoder_max_num_items=2, max_num_batched_tokens=1024)
    resolved, notes = given.resolve(largest_item=largest, row_bytes=8192, budgeted=True)
    assert (resolved.encoder_max_num_tokens, resolved.encoder_max_num_items) == (5000, 2)
    assert notes == ["encoder_max_num_tokens raised from 4096 to 5000, this scenario's largest item"]
    again, silence = resolved.resolve(largest_item=largest, row_bytes=8192, budgeted=True)
    assert again == resolved and not silence


def test_left_out_budgets_are_those_of_the_language_model() -> None:
    """What is left out is not unlimited."""
    resolved, notes = Limits().resolve(largest_item=None, row_bytes=8192, budgeted=True)
    assert (resolved.encoder_max_num_items, resolved.encoder_max_num_tokens) == (128, 8192)
    assert resolved.encoder_cache_rows == 2**27 // 8192 and not notes


@pytest.mark.parametrize("max_bytes, reuse", [(1, True), (0, False)])
def test_the_cache_is_clamped_to_one_iterations_embeddings(max_bytes: int, reuse: bool) -> None:
    """For a budget in bytes; one in rows is taken as it is. 0 bytes turn reuse off, not storage."""
    given = Limits(encoder_cache_max_bytes=max_bytes, max_num_batched_tokens=1000)
    resolved, notes = given.resolve(largest_item=None, row_bytes=32, budgeted=True)
    assert resolved.encoder_cache_rows == 1000 and resolved.encoder_cache_reuse is reuse
    change = f"raised from {max_bytes} bytes to 31.2 KiB (1000 rows)"
    assert notes == [f"encoder_cache_max_bytes {change}: one iteration's embeddings"]
    in_rows = Limits(encoder_cache_rows=7, max_num_batched_tokens=1000)
    resolved, notes = in_rows.resolve(largest_item=None, row_bytes=32, budgeted=True)
    assert resolved.encoder_cache_rows == 7 and not notes


# Whole runs


def small(policy: str = "fcfs", **sections: Any) -> Run:
    workload = {
        "kind": "synthetic",
        "num_requests": 6,
        "arrivals": {"kind": "at_once"},
        "text_tokens": 100,
        "output_tokens": 3,
        "images": {"count": 2, "size": "512x512"},
    }
    content = {
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": policy},
        "workload": workload | sections.pop("workload", {}),
        **sections,
    }
    return run(Scenario.model_validate(content))


def test_front_end_workers_are_parallel_and_serve_in_order() -> None:
    """Six requests of 100 ms each on two workers are prepared at 0.1, 0.1, 0.2, 0.2, 0.3 and 0.3 s."""
    r = small(front_end={"workers": 2, "ms_per_request": 100})
    assert r.requests["prepared"].tolist() == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert r.requests["preparation"].tolist() == r.requests["prepared"].tolist()
    pixels = small(front_end={"workers": 6, "ms_per_megapixel": 50})
    assert pixels.requests["prepared"].tolist() == [2 * 512 * 512 * 50 / 1e9] * 6


def test_who_gives_up_in_the_front_end_never_reaches_the_engine() -> None:
    r = small(front_end={"workers": 1, "ms_per_request": 100}, clients={"timeout": 0.25})
    gone = r.requests[r.requests["status"] == "cancelled"]
    assert gone["request_id"].tolist() == [2, 3, 4, 5]
    assert gone["prepared"].isna().all() and gone["ttft"].isna().all()
    assert (gone["finish"] == 0.25).all() and (gone["reason"] == "the client's timeout").all()
    assert r.requests.loc[:1, "status"].tolist() == ["finished", "finished"]
    assert r.iterations["num_running"].max() == 1


def test_the_notes_say_what_was_changed() -> None:
    """The raise and the clamp in a run's own output."""
    r = small(engine={"encoder_max_num_tokens": 128, "encoder_cache_max_bytes": 1, "max_num_batched_tokens": 2048})
    assert r.limits.encoder_max_num_tokens == 1024 and r.limits.encoder_cache_rows == 2048
    assert [note.split()[0] for note in r.notes] == ["encoder_max_num_tokens", "encoder_cache_max_bytes", "front_end"]


def test_the_notes_name_defaults_that_decide() -> None:
    """A token budget left out that holds one of the largest images, and a front end that costs nothing."""
    r = small(engine={"max_num_batched_tokens": 2000, "encoder_cache_rows": 10_000}, front_end={"workers": 2})
    assert r.notes == [
        "encoder_max_num_tokens is left out, so 2000 as max_num_batched_tokens: "
        "one item of this scenario's largest (1024 tokens) an iteration"
    ]
    roomy = small(engine={"encoder_max_num_tokens": 1200, "encoder_cache_rows": 10_000}, front_end={"workers": 2})
    assert roomy.notes == []


@pytest.mark.parametrize("measure", [{"warmup": 1e8}, {"warmup_requests": 6}, {"warmup": 1e8, "iterations": False}])
def test_a_warmup_longer_than_the_run_leaves_nothing_to_sum_up(measure: dict[str, Any]) -> None:
    r = small(measure=measure)
    assert r.verdict == "finished" and r.summary["completed"] == 0 and r.summary["mean_ttft_ms"] is None


PACKED = {
    "encoder_max_num_items": "unbounded",
    "encoder_max_num_tokens": "unbounded",
    "encoder_cache_rows": "unbounded",
    "free_gpu_memory_fraction": 0.98,
}


def test_out_of_memory_fails_the_requests_of_the_batch() -> None:
    """Those of the batch only: later ones, alone, are served, and nothing of the failed is left."""
    heavy = {"num_requests": 40, "images": {"count": 4, "size": "1024x1024"}}
    arrivals = {"kind": "piecewise", "segments": [{"duration": 0.01, "rate": 3000}, {"duration": 1, "rate": 1}]}
    r = small(workload=heavy | {"arrivals": arrivals}, engine=PACKED)
    status = r.requests["status"]
    assert r.allocation_failures >= 1 and r.verdict == "finished"
    assert set(status) == {"failed", "finished"}
    failed = r.requests[status == "failed"]
    assert failed["reason"].str.startswith("out of memory: encoding ").all() and failed["ttft"].isna().all()
    assert r.iterations["encoder_rows_resident"].iloc[-1] == 0 and r.iterations["num_running"].iloc[-1] <= 2


def test_out_of_memory_ends_the_run_where_it_should() -> None:
    heavy = {"num_requests": 40, "images": {"count": 4, "size": "1024x1024"}}
    r = small(workload=heavy, engine=PACKED, simulation={"out_of_memory": "end_run"})
    assert r.verdict == "out of memory" and r.allocation_failures == 1 and r.num_iterations == 1
    assert set(r.requests["status"]) <= {"failed", "unfinished"} and len(r.requests) == 40


def test_a_failed_batch_leaves_what_others_charged_as_it_was() -> None:
    """`footprint`: 1 has charged the output that fails with 0's batch, and must be able to encode it itself later."""
    asked = [request(id, [Sized(1, 1), Sized(1, 2, "k")]) for id in range(2)]
    backend = SmallBackend(fails=frozenset({("image", "k")}))
    served = serve(asked, "footprint", limits(encoder_max_num_items=1, encoder_cache_rows=6), backend=backend)
    assert served.status == {0: "failed", 1: "failed"}
    assert_clean(served.state)


# When rows are let go


@budgeted
@pytest.mark.parametrize("release, held", [("progressive", [4, 4, 2, 0]), ("prompt_end", [4, 4, 4, 4])])
def test_rows_are_released_as_prefill_passes_them_or_at_the_prompts_end(
    policy: str, release: str, held: list[int]
) -> None:
    """Chunks of 2 over a prompt of [text, item, text, item, text, text, text]: the rows held before each of them."""
    asked = request(0, [Sized(1, 2), Sized(1, 2)], offsets=[1, 4], text=2)
    server = limits(max_num_batched_tokens=2, max_num_seqs=2, release=release)
    assert asked.prompt_tokens == 8
    served = serve([asked], policy, server)
    assert served.iterations["encoder_rows_held"].tolist() == held
    assert_clean(served.state)


@budgeted
def test_progressive_release_lets_a_neighbour_encode_earlier(policy: str) -> None:
    long = request(0, [Sized(1, 4)], text=36)
    started = {}
    for release in ("progressive", "prompt_end"):
        server = limits(max_num_batched_tokens=10, encoder_cache_rows=4, release=release)
        served = serve([long, request(1, [Sized(1, 4)])], policy, server)
        started[release] = next(index for index, step in enumerate(served.steps) if (1, 0) in step.encode)
    assert started == {"progressive": 1, "prompt_end": 4}


@pytest.mark.parametrize("policy, encoded", [("eager", True), ("head_of_line", False), ("footprint", False)])
def test_only_eager_encodes_for_those_without_kv_blocks(policy: str, encoded: bool) -> None:
    """An active request that capacity rejects makes encoder progress; a waiting one never does."""
    desk = Desk(policy, limits(num_kv_blocks=4, block_size=4, max_num_seqs=2))
    desk.submit(request(0, text=4, output=10), request(1, [Sized(1, 2)], text=3), request(2, [Sized(1, 2)]))
    step = desk.step()
    assert step.encode == (((1, 0),) if encoded else ()) and step.prefill == ((0, 4),)
    assert [r.id for r in desk.state.waiting] == [2]
