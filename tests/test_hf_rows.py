"""Transformers' continuous batching: rows for all images of a request or none, and offloading that spares some."""

from __future__ import annotations

from typing import Any

import pytest
from rules import MS, Desk, Sized, Step, limits, request
from servers import serve

from policies import HfRows
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim import run
from sim.cost_model import CostModel
from workloads.request import Request


def served(policy: Any, *asked: Request, **changes: Any) -> Any:
    return serve(asked, policy, limits(**changes))


def test_all_rows_of_a_request_or_none() -> None:
    """Of 6 rows 1 takes 4: 2 needs 3 and is passed over without a reservation, 3 needs 2 and runs."""
    desk = Desk("hf_rows", limits(encoder_cache_rows=6, max_num_batched_tokens=12))
    _, second, _ = desk.submit(
        request(1, [Sized(1, 2)] * 2, text=1), request(2, [Sized(1, 1), Sized(1, 2)]), request(3, [Sized(1, 2)])
    )
    assert desk.step() == Step(encode=((1, 0), (1, 1), (3, 0)), prefill=((1, 5), (3, 3)))
    assert not second.holds and desk.step().prefill == ((2, 4),)


def test_a_request_with_many_images_starves_behind_those_with_few() -> None:
    """Of those with 2 rows another starts before one is done; the one with 5 waits until no more of them come."""
    few = [request(id, [Sized(1, 2)], text=7, arrival=max(0, id - 2) * MS * 4 // 5) for id in range(10)]
    many = request(10, [Sized(1, 5)], arrival=MS // 2)
    run = served("hf_rows", *few, many, encoder_cache_rows=5, max_num_batched_tokens=10)
    assert run.table["first_token"].idxmax() == 10 and set(run.status.values()) == {"finished"}
    assert (run.table["prepared"] > run.table.loc[10, "prepared"]).sum() == 7


def test_rows_are_free_after_the_whole_prompt() -> None:
    asked = request(0, [Sized(1, 2), Sized(1, 2)], offsets=[1, 4], text=2)
    run = served("hf_rows", asked, max_num_batched_tokens=2, max_num_seqs=2)
    assert run.iterations["encoder_rows_held"].tolist() == [4, 4, 4, 4]


def test_nothing_is_shared() -> None:
    shared = Sized(1, 2, "same")
    run = served("hf_rows", request(0, [shared] * 2), request(1, [shared], arrival=5 * MS))
    assert run.table["num_encodes"].tolist() == [2, 1] and run.table["num_cache_hits"].sum() == 0


def test_the_encoder_is_called_for_one_request_after_the_other() -> None:
    desk = Desk("hf_rows", limits())
    desk.submit(request(0, [Sized(1, 1)] * 2), request(1, [Sized(1, 1)]))
    assert [[(r.id, i) for r, i in call] for call in desk.draft().encoder_calls()] == [[(0, 0), (0, 1)], [(1, 0)]]
    assert IterationPlan().encoder_calls() == []


def test_each_call_is_priced() -> None:
    """Two requests with a picture each, at once: in one encoder call, or in two, each at its own price."""
    runs = {}
    for kind in ("unbudgeted", "hf_rows"):
        images = {"count": 1, "size": "256x256"}
        content = {
            "workload.kind": "synthetic", "workload.num_requests": 2, "workload.arrivals": {"kind": "at_once"},
            "workload.text_tokens": 8, "workload.output_tokens": 1, "workload.images": images,
            "policy.kind": kind, "front_end": {}, "engine": {},
        }  # fmt: skip
        runs[kind] = run("tests/data/scenario.yaml", content)
    one, two = (runs[kind].iterations["encode"].max() * 1e3 for kind in ("unbudgeted", "hf_rows"))
    cost, tokens = CostModel.from_profile(runs["hf_rows"].profile), 256
    assert runs["hf_rows"].iterations["num_items"].max() == 2
    assert two == pytest.approx(2 * cost.encode(tokens, tokens**2) / 1e6)
    assert one == pytest.approx(cost.encode(2 * tokens, 2 * tokens**2) / 1e6) and one < two


@pytest.mark.parametrize("scheduler, first", [("fifo", (0,)), ("prefill_first", ())])
def test_what_goes_first(scheduler: Any, first: tuple[int, ...]) -> None:
    """Tokens for two: of two prompts under way and a decode, either the decode runs or it is left out and resumes."""
    desk = Desk(HfRows(scheduler=scheduler, safety_margin=0), limits(max_num_batched_tokens=2, max_num_seqs=2))
    desk.submit(request(0, output=3))
    desk.step()
    desk.submit(request(1, text=9))
    assert desk.step().prefill == ((1, 1),)
    assert desk.step().decodes == first


def test_a_decode_that_is_left_out_keeps_its_answer() -> None:
    policy = HfRows(scheduler="prefill_first")
    run = served(
        policy, request(0, output=5), request(1, text=20, arrival=MS), max_num_batched_tokens=4, max_num_seqs=2
    )
    assert run.table["output_tokens"].to_dict() == {0: 5, 1: 1} and run.verdict == "finished"
    assert run.table["num_preemptions"].sum() == 0


def test_the_safety_margin_keeps_blocks_for_the_decodes() -> None:
    """Twenty blocks, 15 % of them three: with two free no further prompt starts, unless nothing else runs."""
    asked = [request(0, text=18, output=2), request(1, text=1)]
    pool = {"block_size": 1, "num_kv_blocks": 20}
    assert [dict(step.prefill) for step in served("hf_rows", *asked, **pool).steps] == [{0: 18}, {}, {1: 1}]
    none = served(HfRows(safety_margin=0), *asked, **pool)
    assert [dict(step.prefill) for step in none.steps] == [{0: 18, 1: 1}, {}]
    alone = served("hf_rows", request(0, text=19), **pool)
    assert alone.verdict == "finished"


def text_beside_images(fast_path: bool = True) -> Any:
    """Eight blocks: an answer with a picture and one without outgrow them."""
    asked = [request(0, [Sized(1, 1)], text=1, output=6), request(1, text=2, output=6)]
    pool = limits(block_size=1, num_kv_blocks=8)
    return serve(asked, HfRows(safety_margin=0), pool, fast_path=fast_path)


def test_46_who_has_encoded_is_not_offloaded() -> None:
    """transformers#46376: the pixels are gone after encoding, so the text gives way, though it may be the older."""
    run = text_beside_images()
    assert run.table["num_preemptions"].to_dict() == {0: 0, 1: 1} and run.verdict == "finished"
    asked = [request(0, text=2, output=6), request(1, [Sized(1, 1)], text=1, output=6)]
    older = served(HfRows(safety_margin=0), *asked, block_size=1, num_kv_blocks=8)
    assert older.table["num_preemptions"].to_dict() == {0: 1, 1: 0} and older.table["num_encodes"].to_dict() == {
        0: 0,
        1: 1,
    }


def test_46_two_that_have_encoded_wait_for_each_other() -> None:
    """None may be offloaded, and both need a block: the run stalls and says so; with their pixels kept, both finish."""
    asked = [request(id, [Sized(1, 1)], text=1, output=6) for id in range(2)]
    pool = {"block_size": 1, "num_kv_blocks": 8}
    stuck = served(HfRows(safety_margin=0), *asked, **pool)
    assert stuck.status == {0: "stalled", 1: "stalled"} and stuck.verdict == "stalled"
    assert all(reason.startswith("waits for KV blocks") for reason in stuck.blockers.values())
    mended = served(HfRows(safety_margin=0, keep_inputs=True), *asked, **pool)
    assert set(mended.status.values()) == {"finished"}
    assert mended.table["num_encodes"].to_dict() == {0: 1, 1: 2}


def test_of_two_prompts_that_cannot_go_on_the_newer_gives_way() -> None:
    """Ten blocks, six of them theirs: each needs six more. The last active one is never offloaded."""
    desk = Desk(HfRows(safety_margin=0), limits(block_size=1, num_kv_blocks=10, max_num_batched_tokens=8))
    first, second = desk.submit(request(0, text=10), request(1, text=8))
    builder = desk.builder()
    assert builder.admit(first) and builder.admit(second) and builder.prefill(first, 4) and builder.prefill(second, 2)
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    plan = desk.draft()
    assert plan.preempted == [second] and not plan and plan.changes_alone
    desk.state.begin(plan)
    assert [step.prefill for step in desk.steps()] == [((0, 6),), ((1, 8),)]


def test_who_was_offloaded_comes_back_only_when_somebody_has_finished() -> None:
    run = text_beside_images(fast_path=False)
    restart = next(n for n, step in enumerate(run.steps) if n and dict(step.prefill).get(1, 0) > 1)
    assert run.table.loc[0, "finish"] == pytest.approx(run.iterations.loc[restart, "start"])


def test_13_more_rows_than_the_cache_has_fail_alone() -> None:
    """transformers#46376, can_ever_fit: the request is rejected, the others run. Equal images count one by one."""
    same = Sized(1, 40, "same")
    run = served("hf_rows", request(0, [same, same]), request(1, [same]), encoder_cache_rows=64)
    assert run.status == {0: "rejected", 1: "finished"}


def test_the_caches_own_size() -> None:
    for tokens, rows in ((8192, 16384), (32768, 32768)):
        resolved, _ = HfRows().resolve(Limits(max_num_batched_tokens=tokens), largest_item=None, row_bytes=8)
        assert resolved.encoder_cache_rows == rows
    asked = RequestState(request(0, [Sized(10**9, 4)]))
    assert not HfRows().why_never(resolved.model_copy(update={"num_kv_blocks": 10}), asked)
