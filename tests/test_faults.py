"""Small inputs on which other engines went wrong, one test each, named after its number in our collection of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acting import BUDGETED, POLICIES, VLLM
from checks import assert_clean
from rules import MS, Desk, Sized, Step, limits, request
from servers import serve

from policies.feasible import why_never
from policies.request_state import RequestState
from sim import Run
from sim import run as simulate
from workloads import MODELS
from workloads.request import Request
from workloads.traces import write_jsonl

every_policy = pytest.mark.parametrize("policy", POLICIES)
caching = pytest.mark.parametrize("policy", (*BUDGETED, *VLLM))
whole = pytest.mark.parametrize("policy", BUDGETED)
budgeted = pytest.mark.parametrize("policy", [*BUDGETED, "trt_chunk_demand"])


def finished(policy: str, *asked: Request, **changes: Any) -> Any:
    served = serve(asked, policy, limits(**changes))
    assert set(served.status.values()) == {"finished"}
    return served


# Deadlock, livelock, starvation


@pytest.mark.parametrize("gate", [False, True])
def test_01_the_head_of_line_reservation_covers_only_the_first(gate: bool) -> None:
    """TensorRT-LLM#16051: a younger request backfills what the next head needs; the whole footprint is safe."""
    if gate:
        costs = [[(4, 1), (24, 6)], [(12, 3), (20, 5)], [(8, 2), (4, 1), (20, 5)]]
        budgets = {"encoder_cache_rows": 9, "encoder_max_num_items": 3, "encoder_max_num_tokens": 24}
    else:
        costs = [[(1, 1), (4, 2)], [(1, 4)], [(2, 2), (3, 3)]]
        budgets = {"encoder_cache_rows": 5, "encoder_max_num_items": 4, "encoder_max_num_tokens": 4}
    asked = [request(id, items) for id, items in enumerate(costs)]
    stalled = serve(asked, "head_of_line", limits(admission_gate=gate, **budgets))
    assert stalled.verdict == "stalled" and stalled.status == {0: "finished", 1: "stalled", 2: "stalled"}
    finished("footprint", *asked, admission_gate=gate, **budgets)


@every_policy
def test_08_no_iteration_is_empty_while_there_is_work_to_do(policy: str) -> None:
    """vllm#31699: every running request scheduled for 0 tokens, forever. Here each iteration computes or encodes."""
    asked = [request(id, [Sized(4, 4, "same")], text=3, output=3) for id in range(4)]
    served = finished(policy, *asked, max_num_seqs=2, max_num_batched_tokens=2, encoder_cache_rows=4)
    assert all(step != Step() for step in served.steps)


@caching
def test_11_an_item_larger_than_the_cache_is_rejected_alone(policy: str) -> None:
    """vllm#26223: cache 64, item 100 was retried forever."""
    asked = [request(0, [Sized(1, 100)]), request(1, [Sized(1, 64)]), request(2)]
    served = serve(asked, policy, limits(encoder_cache_rows=64))
    assert served.status == {0: "rejected", 1: "finished", 2: "finished"}
    assert "raise encoder_cache_rows" in served.requests[0].reason


@caching
def test_12_break_tokens_between_placeholders_cost_no_rows(policy: str) -> None:
    """vllm#18329: a span of 110 tokens is 100 embeds and 10 breaks; a cache of 100 rows takes it."""
    asked = request(0, [Sized(1, 100, breaks=10)])
    assert asked.prompt_tokens == 111
    served = finished(policy, asked, encoder_cache_rows=100)
    assert served.iterations["encoder_rows_held"].max() == 100


def test_16_an_item_above_the_encoder_budget_runs_alone_where_a_policy_lets_it() -> None:
    """The same input: nobody waits forever either."""
    server = limits(encoder_max_num_tokens=8, admission_gate=True)
    served = serve([request(0, [Sized(9, 1)]), request(1, [Sized(1, 1)])], "trt_chunk_demand", server)
    assert set(served.status.values()) == {"finished"} and served.steps[0].encode == ((0, 0),)


@whole
def test_16_an_item_above_the_encoder_budget_never_blocks_the_queue(policy: str) -> None:
    """TensorRT-LLM's design: waiting [9] with 8 encoder tokens, then a text: the first fails, the text runs."""
    server = limits(encoder_max_num_tokens=8, admission_gate=True)
    served = serve([request(0, [Sized(9, 1)]), request(1)], policy, server)
    assert served.status == {0: "rejected", 1: "finished"}
    assert "raise encoder_max_num_tokens" in served.requests[0].reason


@budgeted
def test_17_admission_respects_the_number_of_items(policy: str) -> None:
    """TensorRT-LLM, test_mm_admission_respects_encoder_batch_size: one item a time, waiting [1, 1], [1], a text."""
    desk = Desk(policy, limits(encoder_max_num_items=1, admission_gate=True))
    first, second, text = desk.submit(request(0, [Sized(1, 1)] * 2), request(1, [Sized(1, 1)]), request(2))
    assert desk.draft().admitted == [first]
    desk.step()
    assert list(desk.state.waiting) == [second, text]  # nobody overtakes the head, not even a text


@budgeted
def test_17_a_ready_active_request_is_not_charged(policy: str) -> None:
    """The same: active [8] is encoded already, so waiting [8] fits 8 tokens."""
    desk = Desk(policy, limits(encoder_max_num_tokens=8, admission_gate=True, max_num_batched_tokens=8))
    (active,) = desk.submit(request(0, [Sized(8, 1)], text=20))
    desk.step()
    assert active.next_item == 1 and active in desk.state.contexts
    (waiting,) = desk.submit(request(1, [Sized(8, 1)]))
    assert desk.draft().admitted == [waiting]


# Encoder cache lifetime


@caching
def test_19_same_item_twice_in_one_request(policy: str) -> None:
    """vllm#54284: H at [0, 40) and [100, 140), chunks of 60, cache 60: freed after token 140, encoded once."""
    twice = request(0, [Sized(1, 40, "h")] * 2, offsets=[0, 100], text=20)
    competitor = request(1, [Sized(1, 50)])
    served = finished(policy, twice, competitor, max_num_batched_tokens=60, encoder_cache_rows=60)
    assert served.encoded().count((0, 0)) == 1 and (0, 1) not in served.encoded()
    assert twice.prompt_tokens == 160
    prefilled = 0
    for step in served.steps:
        if (1, 0) in step.encode:
            break
        prefilled += dict(step.prefill).get(0, 0)
    assert prefilled >= 140


@every_policy
def test_22_an_aborted_request_holds_nothing(policy: str) -> None:
    """vllm#12545: encode, abort before the prefill, cache exactly full: the next request is served."""
    desk = Desk(policy, limits(encoder_cache_rows=10, encoder_max_num_items=1))
    (aborted,) = desk.submit(request(0, [Sized(1, 5), Sized(1, 5)]))
    if policy in BUDGETED:  # others encode what they prefill at once
        assert desk.step() == Step(encode=((0, 0),))
        assert desk.state.cache.held_rows in (5, 10)
    desk.state.abort(aborted)
    assert_clean(desk.state)
    (following,) = desk.submit(request(1, [Sized(1, 5), Sized(1, 5)]))
    desk.steps()
    assert following.num_generated == 1
    assert_clean(desk.state)


@every_policy
def test_24_releasing_again_credits_nothing(policy: str) -> None:
    """vllm#51228: freed on every decode step, so that the capacity grew. `check` recounts it in every iteration."""
    asked = [request(id, [Sized(1, 5, "h")], output=20) for id in range(3)]
    served = finished(policy, *asked, encoder_cache_rows=5, max_num_seqs=2)
    state = served.state
    for again in served.requests.values():
        state.abort(again)
        state.abort(again)
    assert_clean(state)
    assert state.cache.released_rows == (0 if policy == "hf_rows" else 5)  # which shares nothing


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line", "footprint"])
def test_25_nothing_is_evicted_for_a_request_that_does_not_run(policy: str) -> None:
    """vLLM 0.32.0: b needs 40 of 64 rows and more KV than is free; A's entry must be there when it is asked for."""
    desk = Desk(policy, limits(encoder_cache_rows=64, num_kv_blocks=7, block_size=16))
    desk.submit(request(0, [Sized(1, 40, "a")], text=1, output=1))
    desk.step()
    assert desk.state.cache.released_rows == 40
    _, waits = desk.submit(request(1, text=1, output=30), request(2, [Sized(1, 40, "b")], text=60))
    for _ in range(20):  # 1 decodes, 2 waits for blocks
        desk.step()
    assert list(desk.state.contexts) == [waits] and desk.state.cache.num_evictions == 0
    desk.state.abort(waits)
    (again,) = desk.submit(request(3, [Sized(1, 40, "a")], text=1))
    desk.step()
    assert (again.num_encodes, again.num_cache_hits) == (0, 1)


@budgeted
def test_25_a_draft_that_is_not_begun_evicts_nothing(policy: str) -> None:
    desk = Desk(policy, limits(encoder_cache_rows=64))
    desk.submit(request(0, [Sized(1, 40, "a")]))
    desk.step()
    desk.submit(request(1, [Sized(1, 40, "b")]))
    assert desk.draft().encode
    (hit,) = desk.submit(request(2, [Sized(1, 40, "a")]))
    desk.state.waiting.rotate(1)
    assert desk.draft().attached == [(hit, 0)] and desk.state.cache.num_evictions == 0


@every_policy
def test_29_two_replicas_decide_alike(policy: str) -> None:
    """TensorRT-LLM: fed the same events, every replica takes the same decisions and keeps the same LRU order."""
    keys = ["a", "b", "c", "a", "d", "b", "e", "a", "c"]
    asked = [
        request(id, [Sized(2, 3, key), Sized(1, 2, None)], text=4, output=5, arrival=id * MS)
        for id, key in enumerate(keys)
    ]
    server = limits(encoder_cache_rows=9, num_kv_blocks=12, block_size=4, capacity="max_utilization", max_num_seqs=3)
    runs = [serve(asked, policy, server) for _ in range(2)]
    assert runs[0].steps == runs[1].steps
    released = [[(e.key, e.rows.tolist()) for e in run.state.cache.released.values()] for run in runs]  # type: ignore[union-attr]
    assert released[0] == released[1] and (released[0] or policy in ("unbudgeted", "hf_rows"))
    assert runs[0].state.pool.free == runs[1].state.pool.free


@caching
def test_30_what_is_kept_stays_within_the_budget_and_is_not_given_back_when_idle(policy: str) -> None:
    """EasyR1#11002: residency grows to the capacity under pressure, and no further."""
    asked = [request(id, [Sized(1, 4)], arrival=id * 5 * MS) for id in range(20)]
    served = finished(policy, *asked, encoder_cache_rows=10)
    assert served.iterations["encoder_rows_resident"].max() <= 10
    assert served.state.cache.released_rows == served.state.cache.resident_rows == 8
    assert served.state.cache.num_evictions == 18


# Keys


@caching
def test_33_keys_that_end_alike_are_different_items(policy: str) -> None:
    """LMCache#3301: two ids with the same last four hex digits are two misses."""
    first, second = (Sized(1, 2, f"{head}beef") for head in ("1234", "5678"))
    served = finished(policy, request(0, [first]), request(1, [second], arrival=5 * MS))
    assert served.table["num_encodes"].tolist() == [1, 1] and served.table["num_cache_hits"].sum() == 0


@caching
def test_37_items_without_a_hash_are_never_shared_or_kept(policy: str) -> None:
    """LMCache#5055: request-local ids repeat. The same item without a hash, in one request and in others, is new."""
    asked = [request(id, [Sized(1, 2, None)] * 2, arrival=id * 5 * MS) for id in range(3)]
    served = finished(policy, *asked)
    assert served.table["num_encodes"].tolist() == [2, 2, 2]
    assert not list(served.state.cache)


@caching
def test_39_an_image_and_a_video_with_the_same_bytes_are_two_entries(policy: str) -> None:
    """TensorRT-LLM#16051: the modality is part of the key."""
    image, video = Sized(1, 2, "h"), Sized(1, 2, "h", "video")
    served = finished(
        policy, request(0, [image]), request(1, [video], arrival=5 * MS), request(2, [image, video], arrival=9 * MS)
    )
    assert served.table["num_encodes"].tolist() == [1, 1, 0]
    assert {entry.key[:2] for entry in served.state.cache} == {("image", "h"), ("video", "h")}


# Chunked prefill


@every_policy
def test_43_an_image_larger_than_the_chunk_is_encoded_once(policy: str) -> None:
    """vllm#18414: 1024 rows under chunks of 512 are one encode and the slices of its prompt."""
    served = finished(policy, request(0, [Sized(4096, 1024)], text=1), max_num_batched_tokens=512)
    assert served.encoded() == [(0, 0)]
    assert [dict(step.prefill)[0] for step in served.steps] == [512, 512, 1]


@whole
def test_44_the_encoder_runs_on_what_is_missing_and_not_on_all_images_again(policy: str) -> None:
    """sglang#19474: ten images of 1024 rows under 8192 tokens are 8 encodes and then 2, however many chunks follow."""
    ten = request(0, [Sized(1024, 1024)] * 10)
    budgets = {"encoder_max_num_tokens": 8192, "num_kv_blocks": 700, "encoder_cache_rows": 10_240}
    served = finished(policy, ten, max_num_batched_tokens=4096, **budgets)
    assert [len(step.encode) for step in served.steps] == [8, 2, 0, 0]
    assert [sum(dict(step.prefill).values()) for step in served.steps] == [0, 4096, 4096, 2049]


@caching
def test_45_a_preempted_request_hits_what_is_still_there(policy: str) -> None:
    """vLLM: a preempted request starts from token 0; its image is found again, or encoded again without a hash."""
    for key, encodes in (("h", 1), (None, 2)):
        asked = [request(0, text=40, output=60), request(1, [Sized(1, 40, key)], text=20, output=60, priority=1)]
        served = finished(policy, *asked, num_kv_blocks=9, block_size=16, capacity="max_utilization")
        assert served.table["num_preemptions"].tolist() == [0, 1]
        assert served.table.loc[1, "num_encodes"] == encodes
        assert served.table["output_tokens"].tolist() == [60, 60]


# Memory


STRESS: dict[str, Any] = {
    "model": "qwen3-vl-8b",
    "profile": "h200/qwen3-vl-8b",
    "workload.kind": "synthetic",
    "workload.num_requests": 24,
    "workload.arrivals": {"kind": "at_once"},
    "workload.text_tokens": 200,
    "workload.output_tokens": 4,
    "workload.images": {"count": 7, "size": "1024x1024"},
}


def scenario(tmp_path: Path, policy: str, **changes: Any) -> Run:
    path = tmp_path / "small.yaml"
    path.write_text("{}")
    return simulate(path, {**STRESS, "policy.kind": policy, **changes})


@budgeted
def test_60_what_the_encoder_keeps_was_reserved_before_the_kv_pool(policy: str, tmp_path: Path) -> None:
    """TensorRT-LLM: encoding ahead without a profiled budget failed 76 times. Peak within the estimate here."""
    changes = {"engine.free_gpu_memory_fraction": 0.98, "engine.max_num_batched_tokens": 16384}
    run = scenario(tmp_path, policy, **changes)
    model, memory = MODELS["qwen3-vl-8b"], run.profile.memory
    assert run.allocation_failures == 0 and (run.requests["status"] == "finished").all()
    rows, tokens = run.limits.encoder_cache_rows, run.limits.encoder_max_num_tokens
    activations = 2 * (2 * memory.vision_hidden.value + 2 * memory.vision_mlp.value + 3 * 2 * 16 * 16)
    assert isinstance(rows, int) and isinstance(tokens, int)
    assert 0 < run.peak_encoder_bytes <= rows * model.embedding_row_bytes + tokens * activations


def test_60_without_a_budget_the_same_load_fails(tmp_path: Path) -> None:
    """The runs that failed: `fcfs` with an unbounded cache and unbounded batches, on a pool that left no room."""
    unbounded = dict.fromkeys(("max_num_items", "max_num_tokens", "cache_rows"), "unbounded")
    changes = {f"engine.encoder_{name}": value for name, value in unbounded.items()}
    run = scenario(tmp_path, "fcfs", **changes, **{"engine.free_gpu_memory_fraction": 0.999})
    assert run.allocation_failures > 0 and (run.requests["status"] == "failed").any()
    reasons = run.requests.loc[run.requests["status"] == "failed", "reason"]
    assert reasons.str.startswith("out of memory: encoding ").all()


@budgeted
@pytest.mark.parametrize("burst", [5, 50])
def test_63_the_encoders_batch_does_not_grow_with_the_burst(policy: str, burst: int) -> None:
    """sglang#14907: 500 images in one call ran out of memory. Items and tokens cap every batch."""
    asked = [request(id, [Sized(3, 1)] * 10) for id in range(burst)]
    served = finished(policy, *asked, encoder_max_num_items=6, encoder_max_num_tokens=16, max_num_seqs=100)
    assert served.iterations["num_items"].max() == 5
    assert served.iterations["encoder_tokens"].max() == 15


# Metrics


def replayed(tmp_path: Path, asked: list[Request], **changes: Any) -> Run:
    write_jsonl(tmp_path / "load.jsonl", asked)
    (tmp_path / "load.yaml").write_text("{}")
    base = {"model": "qwen3-vl-8b", "profile": "h200/qwen3-vl-8b", "policy.kind": "fcfs"}
    load = {"workload.kind": "jsonl", "workload.path": str(tmp_path / "load.jsonl")}
    return simulate(tmp_path / "load.yaml", base | load | changes)


def token_times(run: Run) -> np.ndarray[Any, Any]:
    """When a single request's tokens came: every iteration that ended after its first token."""
    ends = run.iterations["end"].to_numpy()
    return ends[ends >= run.requests["first_token"].iloc[0]]


def test_65_the_first_token_is_no_inter_token_latency(tmp_path: Path) -> None:
    """vllm#7242: three tokens have one TTFT and two gaps."""
    run = replayed(tmp_path, [Request(0, 0, 500, 3)])
    times = token_times(run)
    assert len(times) == 3 and run.requests["ttft"].iloc[0] == times[0]
    assert sorted(run.itl) == pytest.approx(sorted(np.diff(times)), abs=2e-9)


def test_66_tpot_is_over_emitted_tokens(tmp_path: Path) -> None:
    """sglang#10746: (last - first) / (n - 1); an answer of one token has none; an unfinished answer none either."""
    run = replayed(tmp_path, [Request(0, 0, 500, 5), Request(1, 10**9, 500, 1)])
    long, short = run.requests.to_dict("records")
    assert long["tpot"] == pytest.approx((long["finish"] - long["first_token"]) / 4)
    assert np.isnan(short["tpot"]) and short["ttft"] > 0
    assert run.summary["mean_tpot_ms"] == pytest.approx(long["tpot"] * 1e3)
    cut = replayed(tmp_path, [Request(0, 0, 500, 5000)], **{"clients.timeout": 0.5})
    emitted = len(token_times(cut))
    assert cut.requests["status"].tolist() == ["cancelled"]
    assert cut.requests["output_tokens"].tolist() == [emitted] and 10 < emitted < 5000
    assert cut.summary["mean_tpot_ms"] is None and not len(cut.itl)


def test_68_the_first_emitted_token_counts(tmp_path: Path) -> None:
    """sglang#6525: a one-token answer has a TTFT, which is all of its latency."""
    run = replayed(tmp_path, [Request(0, 0, 500, 1)])
    row = run.requests.iloc[0]
    assert row["ttft"] == row["e2el"] > 0 and row["first_token"] == row["finish"] == run.iterations["end"].iloc[0]
    assert not len(run.itl)


@pytest.mark.parametrize("share", [{}, {"pool": {"size": 2}}])
@budgeted
def test_69_without_keys_nothing_is_shared(policy: str, share: dict[str, Any], tmp_path: Path) -> None:
    """TensorRT-LLM PR #16051: a shared pool contaminates a comparison; without keys there is nothing to hit."""
    images = {"count": 3, "size": "512x512", "content_keys": not share, **share}
    run = scenario(tmp_path, policy, **{"workload.images": images})
    assert run.summary["encoder_cache_hits"] == 0 and run.summary["num_encodes"] == 3 * 24


@caching
def test_69_with_the_cache_off_no_request_profits_from_another(policy: str, tmp_path: Path) -> None:
    """The same with the reuse of outputs switched off: neither after a release nor side by side."""
    images = {"count": 3, "size": "512x512", "pool": {"size": 3, "draw": "all_in_order"}}
    run = scenario(tmp_path, policy, **{"workload.images": images, "engine.encoder_cache_reuse": False})
    assert run.summary["encoder_cache_hits"] == 0 and run.summary["num_encodes"] == 3 * 24


def test_70_latency_starts_at_the_submission_on_the_one_clock(tmp_path: Path) -> None:
    """tt-inference-server#259: the client's own time is not in the TTFT, but what its request waits for is."""
    arrival = 1_234_567_891
    run = replayed(tmp_path, [Request(0, arrival, 500, 2)], **{"front_end.ms_per_request": 40})
    row = run.requests.iloc[0]
    first = run.iterations.iloc[0]
    assert row["arrival"] == arrival / 1e9
    assert row["prepared"] == pytest.approx(row["arrival"] + 0.04) and first["start"] == row["prepared"]
    assert row["first_token"] == first["end"]
    assert row["ttft"] == pytest.approx(0.04 + first["end"] - first["start"], abs=2e-9)


def test_a_request_says_which_knob_to_raise_when_it_can_never_be_served() -> None:
    """The siblings of 11 and 16: text and whole requests that fit nowhere."""
    tight = limits(num_kv_blocks=2, block_size=4, encoder_cache_rows=3, max_num_batched_tokens=8, chunked_prefill=False)
    reasons = [
        (request(0, text=8, output=2), "raise num_kv_blocks or free_gpu_memory_fraction"),
        (request(1, [Sized(1, 2)] * 2), "raise encoder_cache_rows or encoder_cache_max_bytes"),
        (request(2, [Sized(1, 2, "same")] * 2), ""),
    ]
    for asked, reason in reasons:
        assert why_never(tight, RequestState(asked)).endswith(reason)
