"""SGLang: prompts first, one encoder call for what the chunks touch, and a cache that nobody holds references in."""

from __future__ import annotations

from typing import Any

import pytest
from rules import MS, Desk, Sized, Step, limits, request
from servers import serve

from policies import Sglang
from policies.limits import Limits
from workloads.errors import InputError


def kept(desk: Desk) -> list[Any]:
    """Content keys in the cache, the one used longest ago first."""
    return [key[1] for key in desk.state.cache.released]


def test_prompts_come_before_answers() -> None:
    """0 has begun to answer and waits while 1 is computed in three chunks; mixed, it goes on beside them."""
    asked = [request(0, output=4), request(1, text=20, arrival=MS)]
    steps = serve(asked, "sglang", limits(max_num_batched_tokens=8)).steps
    assert [step.decodes for step in steps[:5]] == [(), (), (), (), (0,)]
    assert [dict(step.prefill).get(1) for step in steps[1:4]] == [8, 8, 4]
    mixed = serve(asked, Sglang(enable_mixed_chunk=True), limits(max_num_batched_tokens=8)).steps
    assert [(step.decodes, dict(step.prefill).get(1)) for step in mixed[1:4]] == [((0,), 7), ((0,), 7), ((0,), 6)]


def test_one_request_is_chunked_at_a_time() -> None:
    """1's last chunk leaves room for the whole of 2 and the beginning of 3."""
    desk = Desk("sglang", limits(max_num_batched_tokens=10))
    desk.submit(request(1, text=14), request(2, text=3), request(3, text=9))
    assert [dict(desk.step().prefill) for _ in range(3)] == [{1: 10}, {1: 4, 2: 3, 3: 3}, {3: 6}]


def test_the_chunks_of_all_requests_are_encoded_in_one_call() -> None:
    """What they touch and the cache does not have, whatever it costs; an item that two of them name is encoded once."""
    shared = Sized(1000, 2, "shared")
    desk = Desk("sglang", limits(encoder_max_num_items=1, encoder_max_num_tokens=1000, max_num_batched_tokens=10))
    desk.submit(request(1, [shared, Sized(700, 2)]), request(2, [shared, Sized(800, 4)], text=9))
    plan = desk.draft()
    assert plan.encoder_tokens == 2500 and len(plan.encoder_calls()) == 1
    assert [(r.id, i) for r, i in plan.encode] == [(1, 0), (1, 1), (2, 1)]
    assert [(r.id, i) for r, i in plan.attached] == [(2, 0)]


def test_44_only_the_images_that_a_chunk_touches() -> None:
    """sglang#19474: ten images of 1024 rows in chunks of 8192 are eight and then two, not ten in each."""
    ten = request(0, [Sized(1024, 1024)] * 10)
    served = serve([ten], "sglang", limits(max_num_batched_tokens=8192, num_kv_blocks=700))
    assert [len(step.encode) for step in served.steps] == [8, 2]


def test_an_output_that_is_evicted_between_two_chunks_is_encoded_again() -> None:
    """A picture of 12 rows in chunks of 8; beside its first chunk the other's 5 rows do not fit a cache of 16."""
    long, other = request(1, [Sized(1, 12)], text=3), request(2, [Sized(1, 5)], text=1)
    for rows, encodes in ((16, [(1, 0), (2, 0)]), (12, [(1, 0), (1, 0), (2, 0)])):
        desk = Desk("sglang", limits(max_num_batched_tokens=8, encoder_cache_rows=rows))
        desk.submit(long)
        first = desk.step()
        if rows == 12:  # somebody else's picture comes between: no reference protects the first
            cache = desk.state.cache
            cache.evict(next(iter(cache.released)))
        desk.submit(other)
        found = [*first.encode, *(item for step in desk.steps() for item in step.encode)]
        assert found == encodes


def test_the_least_recently_used_output_goes_first() -> None:
    """a, b, then a again: c makes room of b."""
    desk = Desk("sglang", limits(encoder_cache_rows=4))
    for id, key in enumerate("abac"):
        desk.submit(request(id, [Sized(1, 2, key)]))
        desk.step()
    assert kept(desk) == ["a", "c"] and desk.state.cache.num_evictions == 1


def test_what_a_batch_reads_may_be_more_than_the_cache_keeps() -> None:
    """Four pictures of 3 rows in one iteration, of which the last two are kept; evicted or not, all are read."""
    served = serve([request(0, [Sized(1, 3)] * 4)], "sglang", limits(encoder_cache_rows=7))
    assert served.steps == [Step(encode=((0, 0), (0, 1), (0, 2), (0, 3)), prefill=((0, 13),))]
    assert served.iterations["encoder_rows_held"].tolist() == [12]
    assert [key[1] for key in served.state.cache.released] == ["0/2", "0/3"]


def test_11_an_item_larger_than_the_cache_is_used_and_not_kept() -> None:
    """It evicts nobody either; each chunk that touches it encodes it again."""
    desk = Desk("sglang", limits(encoder_cache_rows=4, max_num_batched_tokens=8))
    desk.submit(request(0, [Sized(1, 2, "small")]))
    desk.step()
    desk.submit(request(1, [Sized(9, 12)], text=4))
    assert [step.encode for step in desk.steps()] == [((1, 0),), ((1, 0),)]
    assert kept(desk) == ["small"]


def test_an_item_without_a_name_is_kept_for_its_own_next_chunk_alone() -> None:
    desk = Desk("sglang", limits(max_num_batched_tokens=8))
    desk.submit(request(0, [Sized(9, 12, None)], text=4), request(1, [Sized(9, 12, None)], text=4))
    assert [item for step in desk.steps() for item in step.encode] == [(0, 0), (1, 0)]


def test_19_the_same_item_twice_in_one_request() -> None:
    """vllm#54284: between its two places nobody holds it, and a competitor evicts it; with room it is encoded once."""
    twice, competitor = request(0, [Sized(1, 40, "h")] * 2, offsets=[0, 100], text=20), request(1, [Sized(1, 50)])
    for rows, encodes in ((60, 1), (30, 3)):
        served = serve([twice, competitor], "sglang", limits(max_num_batched_tokens=60, encoder_cache_rows=rows))
        assert served.encoded().count((0, 0)) + served.encoded().count((0, 1)) == encodes


def test_14_a_head_without_kv_blocks_freezes_the_walk() -> None:
    """sglang#22831: the head needs 90 of 80 free, the next 5; skipping (PR #23152) admits it at once."""
    asked = [request(0, text=11, output=10), request(1, text=90, arrival=MS), request(2, text=5, arrival=MS)]
    pool = limits(block_size=1, num_kv_blocks=100)
    engines = serve(asked, "sglang", pool)
    assert engines.table["admitted"].to_dict() == {0: 0, 1: 10 * MS / 1e9, 2: 10 * MS / 1e9}
    mended = serve(asked, Sglang(skip_blocked=True), pool)
    assert mended.table["admitted"].to_dict() == {0: 0, 1: 11 * MS / 1e9, 2: MS / 1e9}


def test_the_shortest_answer_is_retracted_and_waits_at_the_queues_end() -> None:
    """Seven blocks of one token, nothing kept free for answers: 1 has answered less than 0, so it gives way."""
    asked = [request(0, text=1, output=6), request(1, text=1, output=6, arrival=MS)]
    pool = limits(block_size=1, num_kv_blocks=7, capacity="max_utilization")
    served = serve(asked, Sglang(new_token_ratio=0), pool)
    assert served.table["num_preemptions"].to_dict() == {0: 0, 1: 1}
    assert set(served.status.values()) == {"finished"}
    roomy = serve(asked, Sglang(new_token_ratio=1), pool)
    assert roomy.table["num_preemptions"].sum() == 0


def test_a_cache_without_references_is_sglangs_alone() -> None:
    with pytest.raises(InputError, match=r"^engine\.release: only sglang"):
        Limits(release="iteration").fixed({})
    resolved, notes = Sglang().resolve(Limits(release="prompt_end"), largest_item=None, row_bytes=32768)
    assert (resolved.release, resolved.encoder_cache_rows) == ("iteration", 100 * 2**20 // 32768)
    assert notes == ["engine.release is iteration: this policy's engine knows nothing else"]
    asked = Limits(encoder_cache_max_bytes=2**20)
    assert Sglang().resolve(asked, largest_item=None, row_bytes=32768)[0].encoder_cache_rows == 32
