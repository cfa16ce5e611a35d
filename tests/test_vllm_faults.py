"""vLLM's own faults, numbered as in our collection: what the engine does, and what it does with `mended`."""

from __future__ import annotations

from typing import Any

import pytest
from acting import VLLM
from rules import MS, Desk, Sized, Step, limits, request
from servers import serve

from policies import Vllm, VllmPriority
from policies.vllm_rules import VllmRules

KINDS: dict[str, type[VllmRules]] = {"vllm": Vllm, "vllm_priority": VllmPriority}
every_vllm = pytest.mark.parametrize("policy", VLLM)
mended_or_not = pytest.mark.parametrize("mended", [False, True])


def vllm(policy: str, **options: Any) -> VllmRules:
    return KINDS[policy](**options)


# Deadlock, livelock, starvation


@every_vllm
@mended_or_not
def test_07_who_waits_holds_no_output(policy: str, mended: bool) -> None:
    """vllm#31857: b has a's image and no KV blocks until a is done. It holds nothing meanwhile and encodes nothing."""
    desk = Desk(vllm(policy, mended=mended), limits(encoder_cache_rows=64, num_kv_blocks=11))
    (a,) = desk.submit(request(0, [Sized(1, 40, "h")], text=60, output=8))
    steps = [desk.step()]
    (b,) = desk.submit(request(1, [Sized(1, 40, "h")], text=60))
    for _ in range(2, 9):
        steps.append(desk.step())
        assert desk.state.cache.held_rows == 0 and not b.holds
    assert a.num_generated == 8 and all(step.decodes == (0,) for step in steps[1:])
    assert desk.step() == Step(prefill=((1, 100),))
    assert (b.num_encodes, b.num_cache_hits) == (0, 1)


@every_vllm
@pytest.mark.parametrize("gap", [1, 5, 15])
@mended_or_not
def test_09_a_chunk_is_not_rounded_away(policy: str, gap: int, mended: bool) -> None:
    """vllm#40707: chunks end at multiples of 16, and 40 rows hold one of the items [0, 40) and [40 + gap, ...)."""
    tight = limits(encoder_cache_rows=40)
    asked = request(0, [Sized(1, 40)] * 2, offsets=[0, 40 + gap], text=30)
    served = serve([asked, request(1, text=3)], vllm(policy, chunk_alignment=16, mended=mended), tight)
    chunks = [tokens for step in served.steps for id, tokens in step.prefill if id == 0]
    if mended:
        assert chunks == [40 + gap, 70] and served.encoded() == [(0, 0), (0, 1)]
        return
    first = (40 + gap) // 16 * 16
    if first >= 40:  # the first item is passed, so the second has room
        assert served.status == {0: "finished", 1: "finished"}
    else:
        assert chunks == [first] and served.status == {0: "stalled", 1: "finished"}
        assert served.blockers[0] == ("waits for 40 encoder-cache rows for item 1: of 40, 40 held by itself (40)")


@every_vllm
def test_09_chunks_end_at_multiples(policy: str) -> None:
    """But for the last; and where a decode leaves less than one multiple, the prefill waits for its end."""
    server = limits(max_num_batched_tokens=40)
    served = serve([request(0, text=90)], vllm(policy, chunk_alignment=16), server)
    assert [dict(step.prefill)[0] for step in served.steps] == [32, 32, 26]
    exact = limits(max_num_batched_tokens=16, max_num_seqs=4)
    asked = [request(0, output=4), request(1, text=40, arrival=MS)]
    served = serve(asked, vllm(policy, chunk_alignment=16), exact, fast_path=False)
    assert [dict(step.prefill).get(1, 0) for step in served.steps] == [0, 0, 0, 0, 16, 16, 8]


@every_vllm
@pytest.mark.parametrize(
    "options, chunks",
    [
        ({}, [40, 60]),
        ({"num_prefill_lookahead_tokens": 1}, [39]),
        ({"num_prefill_lookahead_tokens": 1, "mended": True}, [39, 1, 60]),
    ],
)
def test_10_a_lookahead_does_not_stop_prefill_forever(policy: str, options: dict[str, Any], chunks: list[int]) -> None:
    """vllm-ascend#17195: kept until prefill is past it by one, and prefill stops one short of the next."""
    asked = request(0, [Sized(1, 40)] * 2, text=20)
    served = serve([asked, request(1, text=2)], vllm(policy, **options), limits(encoder_cache_rows=40))
    assert [tokens for step in served.steps for id, tokens in step.prefill if id == 0] == chunks
    assert served.status[0] == ("finished" if sum(chunks) == 100 else "stalled")
    assert served.status[1] == "finished"  # it waits behind nobody


@every_vllm
def test_10_an_output_is_kept_for_the_lookahead(policy: str) -> None:
    """A drafter one token ahead: the item after the chunk is encoded with it, and released one token late."""
    desk = Desk(vllm(policy, num_prefill_lookahead_tokens=1), limits(max_num_batched_tokens=10))
    (asked,) = desk.submit(request(0, [Sized(1, 5), Sized(1, 5)], offsets=[0, 10], text=6))
    desk.submit(request(1, text=1, output=20))
    assert desk.step() == Step(encode=((0, 0), (0, 1)), prefill=((0, 10),))
    assert [*asked.holds] == [1]
    desk.step()
    assert not asked.holds


# Encoder cache lifetime


def freeable(policy: VllmRules, *keys: str) -> Desk:
    """64 rows with outputs that nobody holds, and all seven KV blocks but one taken for twenty iterations."""
    desk = Desk(policy, limits(encoder_cache_rows=64, num_kv_blocks=7))
    for id, key in enumerate(keys):
        desk.submit(request(id, [Sized(1, 20, key)]))
        desk.step()
    desk.submit(request(90, text=70, output=20))
    desk.step()
    assert [*desk.state.cache.released] == [("image", key, 20) for key in keys]
    return desk


@every_vllm
@mended_or_not
def test_25_nothing_is_evicted_for_who_does_not_start(policy: str, mended: bool) -> None:
    """vLLM 0.32 evicts as it asks: b finds no KV blocks, and what a needs again is gone all the same."""
    desk = freeable(vllm(policy, mended=mended), "a", "b")
    (waits,) = desk.submit(request(100, [Sized(1, 40, "c")], text=60))
    assert desk.step().decodes == (90,)
    assert waits.order == -1 and desk.state.cache.num_evictions == (0 if mended else 1)
    desk.state.abort(waits)
    (again,) = desk.submit(request(101, [Sized(1, 20, "a")], text=1))
    desk.steps()
    assert (again.num_encodes, again.num_cache_hits) == ((0, 1) if mended else (1, 0))


@every_vllm
@mended_or_not
def test_25_nor_is_anything_kept_longer_for_who_does_not_start(policy: str, mended: bool) -> None:
    """A sibling: who waits for blocks has looked at a, so b is evicted before it, although b was used later."""
    desk = freeable(vllm(policy, mended=mended), "a", "b")
    (waits,) = desk.submit(request(100, [Sized(1, 20, "a")], text=80))
    desk.step()
    order = [key for _, key, _ in desk.state.cache.released]
    assert order == (["a", "b"] if mended else ["b", "a"])
    draft = desk.draft()
    assert draft.decodes_only and waits.order == -1  # asking again and again changes nothing more


@every_vllm
def test_25_a_draft_evicts_nothing_before_it_begins(policy: str) -> None:
    desk = freeable(vllm(policy), "a", "b")
    desk.submit(request(100, [Sized(1, 40, "c")], text=60))
    assert [*desk.draft().evicted] == [*desk.draft().evicted] == [("image", "a", 20)]
    assert desk.state.cache.num_evictions == 0 and len(desk.state.cache.released) == 2


@every_vllm
def test_an_output_evicted_and_encoded_again_in_one_draft(policy: str) -> None:
    """A sibling: the first request evicts what the second was about to find."""
    desk = Desk(vllm(policy), limits(encoder_cache_rows=10))
    for id, key in enumerate("ab"):
        desk.submit(request(id, [Sized(1, 5, key)]))
        desk.step()
    first, second = desk.submit(request(2, [Sized(1, 5, "c")]), request(3, [Sized(1, 5, "a")]))
    plan = desk.draft()
    assert plan.encode == [(first, 0), (second, 0)]
    assert [key for _, key, _ in plan.evicted] == ["a", "b"]
    desk.steps()
    assert sorted(key for _, key, _ in desk.state.cache.released) == ["a", "c"]


# Keys


@every_vllm
@pytest.mark.parametrize("apart", [0, 5 * MS])
@mended_or_not
def test_35_a_content_key_used_again_for_another_picture(policy: str, apart: int, mended: bool) -> None:
    """vllm#57696: 320 rows under a key, then 1088. Only that request fails; mended, it is another output."""
    asked = [
        request(0, [Sized(1, 320, "uuid")]),
        request(1, [Sized(1, 1088, "uuid")], arrival=apart),
        request(2, [Sized(1, 320, "uuid")], arrival=10 * MS),
    ]
    served = serve(asked, vllm(policy, mended=mended), limits())
    if mended:
        assert set(served.status.values()) == {"finished"} and served.table["num_encodes"].tolist() == [1, 1, 0]
        return
    assert served.status == {0: "finished", 1: "failed", 2: "finished"}
    assert served.requests[1].reason == "item 0 has 1088 rows, another of 320 is cached under its content key"
    assert served.table["num_encodes"].tolist() == [1, 0, 0]


@every_vllm
def test_35_twice_in_one_request(policy: str) -> None:
    """A sibling: what it was to encode for it is not encoded, and its client hears of it."""
    asked = [request(0, [Sized(1, 3, "k"), Sized(1, 4, "k")]), request(1, [Sized(1, 3, "k")])]
    served = serve(asked, policy, limits())
    assert served.status == {0: "failed", 1: "finished"} and served.encoded() == [(1, 0)]


@every_vllm
def test_items_without_a_key_are_nobodys_namesakes(policy: str) -> None:
    served = serve([request(0, [Sized(1, 3, None), Sized(1, 4, None)])], policy, limits())
    assert served.status == {0: "finished"}


# Chunked prefill and preemption


@every_vllm
@mended_or_not
def test_44_the_encoder_runs_on_what_the_chunk_reaches(policy: str, mended: bool) -> None:
    """sglang#19474: ten images of 1024 rows, chunks of 8192 tokens: 8 encodes, then 2."""
    roomy = limits(max_num_batched_tokens=8192, encoder_max_num_tokens=8192, num_kv_blocks=700)
    served = serve([request(0, [Sized(4096, 1024)] * 10)], vllm(policy, mended=mended), roomy)
    assert [len(step.encode) for step in served.steps] == [8, 2]
    assert [dict(step.prefill)[0] for step in served.steps] == [8192, 2049]


@every_vllm
@mended_or_not
def test_45_a_preempted_request_resumes_from_the_start(policy: str, mended: bool) -> None:
    """Eight blocks, two of 60 tokens with an image of 40 rows each: b resumes at step 21, 65 tokens, 0 encodes."""
    desk = Desk(vllm(policy, mended=mended), limits(num_kv_blocks=8))
    asked = [request(id, [Sized(1, 40)], text=20, output=20, priority=id) for id in range(2)]
    a, b = desk.submit(*asked)
    steps = desk.steps()
    assert [n for n, step in enumerate(steps, start=1) if step.preempted] == [6] and steps[5].preempted == (1,)
    assert a.num_preemptions == 0 and a.num_generated == 20
    assert steps[20] == Step(prefill=((1, 65),)) and b.num_cache_hits == 1
    assert len(steps) == 20 + 15 and b.num_generated == 20


@every_vllm
def test_45_what_the_preempted_held_can_be_evicted_for_others(policy: str) -> None:
    """A sibling: 0 needs a block, 2 gives up its image in the middle of it, and 1 has its rows in that very draft."""
    options = {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 3}
    tight = limits(block_size=1, num_kv_blocks=15, max_num_batched_tokens=10, encoder_cache_rows=8)
    desk = Desk(vllm(policy, **options), tight)
    desk.submit(
        request(0, text=2, output=5),
        request(1, [Sized(1, 8)], offsets=[6]),
        request(2, [Sized(1, 8)], text=2, priority=1),
    )
    assert desk.step() == Step(encode=((2, 0),), prefill=((0, 2), (1, 3), (2, 3)))
    assert desk.step() == Step(prefill=((1, 3), (2, 3)), decodes=(0,))
    assert desk.step() == Step(encode=((1, 0),), prefill=((1, 3),), decodes=(0,), preempted=(2,))
    assert desk.state.cache.num_evictions == 1
    desk.steps()
    assert not desk.state.waiting and not desk.state.num_active
