"""Single rules of prefix caching: names of blocks, the order of eviction, what a draft counts, when a hit is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from acting import POLICIES
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_checks import tokens_of
from prefix_loads import CACHED, alike, prompts, started
from rules import MS, Desk, Sized, limits, request
from servers import serve
from test_fast_path import assert_same

from policies.block_keys import BlockKeys
from policies.prefix_pool import PrefixPool
from workloads import Jsonl, Mooncake, Synthetic, model_named
from workloads.request import Request
from workloads.traces import write_jsonl

MAX_UTILIZATION = ("hf_rows", "vllm", "vllm_priority")  # whatever is asked for


def keys(asked: Request, block_size: int) -> list[object]:
    named = BlockKeys(asked, block_size)
    return [named.key(index) for index in range(asked.prompt_tokens // block_size)]


# Names


@settings(max_examples=300, deadline=None)
@given(one=prompts(0), other=prompts(1), block_size=st.integers(1, 6))
def test_names_are_equal_exactly_where_all_tokens_are(one: Request, other: Request, block_size: int) -> None:
    told = [tokens_of(asked) for asked in (one, other)]
    for index, pair in enumerate(zip(keys(one, block_size), keys(other, block_size), strict=False)):
        end = (index + 1) * block_size
        assert (pair[0] == pair[1]) == (told[0][:end] == told[1][:end])


@pytest.mark.parametrize(("block_size", "shared"), [(1, 1100), (16, 68), (256, 4), (512, 2), (700, 1), (1024, 1)])
def test_a_partial_last_block_of_a_trace_counts_for_its_tokens(block_size: int, shared: int, tmp_path: Path) -> None:
    """Blocks of any size out of those of 512; the longer prompt goes on where the shorter one ends."""
    lines = [
        f'{{"timestamp": 0, "input_length": {length}, "output_length": 1, "hash_ids": {hashes}}}'
        for length, hashes in ((1100, [4, 5, 6]), (1400, [4, 5, 6]), (1400, [4, 5, 7]), (1100, [3, 5, 6]))
    ]
    (tmp_path / "trace").write_text("\n".join(lines))
    asked = list(Mooncake(path=tmp_path / "trace").requests(seed=0, model=model_named("qwen3-vl-8b")))
    first, longer, last, none = (keys(r, block_size) for r in asked)
    assert len(first) == shared and longer[:shared] == first
    assert sum(a == b for a, b in zip(first, last, strict=False)) == 1024 // block_size
    assert not {*none} & {*first}


def test_text_without_hashes_and_items_without_keys_end_what_is_shared() -> None:
    image = Sized(4, 4, "k")
    assert BlockKeys(request(0, text=8), 2).num_shareable == 0
    assert BlockKeys(request(0, [image], text=8, offsets=[3]), 2).num_shareable == 0  # text before it
    assert BlockKeys(request(0, [image], text=8), 2).num_shareable == 2
    assert BlockKeys(request(0, [image, Sized(4, 4, None)], text=8), 2).num_shareable == 2


def test_shared_prefixes_of_a_synthetic_workload(tmp_path: Path) -> None:
    description = {
        "num_requests": 300,
        "arrivals": {"kind": "at_once"},
        "text_tokens": {"kind": "uniform", "min": 1, "max": 9},
        "output_tokens": 2,
        "images": {"count": 1, "size": "56x56", "pool": {"size": 2}},
    }
    prefix = {"prefix_len": 500, "num_prefixes": 3}
    model = model_named("qwen3-vl-8b")
    plain = list(Synthetic.model_validate(description).requests(seed=1, model=model))
    asked = list(Synthetic.model_validate({**description, "shared_prefix": prefix}).requests(seed=1, model=model))
    assert [r.prompt_tokens - 500 for r in asked] == [r.prompt_tokens for r in plain]
    assert [r.items[0].offset - 500 for r in asked] == [r.items[0].offset for r in plain]
    counts = Counter(r.block_hashes for r in asked)
    assert len(counts) == 3 and min(counts.values()) > 60
    rows = plain[0].items[0].length
    assert {BlockKeys(r, 1).num_shareable for r in asked} == {500 + rows + 2}  # with both delimiters
    assert len({keys(r, 1)[499] for r in asked}) == 3 and len({keys(r, 1)[501] for r in asked}) == 6
    other = Synthetic.model_validate({**description, "shared_prefix": prefix}).requests(seed=2, model=model)
    assert not {r.block_hashes for r in other} & {*counts}
    write_jsonl(tmp_path / "r.jsonl", asked)
    assert list(Jsonl(path=tmp_path / "r.jsonl").requests(seed=0, model=model)) == asked


# The pool


def test_blocks_are_used_fresh_first_then_the_longest_free_and_a_prefix_from_its_end() -> None:
    pool = PrefixPool(6, 1)
    one, other = pool.take(3), pool.take(2)
    assert [*one, *other] == [1, 2, 3, 4, 5]
    for block in one:
        pool.name(block, ("one", block))
    pool.give(other)
    pool.give(one)
    assert [*pool.free] == [6, 5, 4, 3, 2, 1]
    pool.hold([1])
    assert [*pool.take(4)] == [6, 5, 4, 3] and pool.blocks == {("one", 1): 1, ("one", 2): 2}
    assert pool.changed[-1] == ("one", 3) and pool.num_free == 1


class Books:
    """A pool beside plain lists of who holds what."""

    def __init__(self) -> None:
        self.pool = PrefixPool(8, 1)
        self.owners: list[Any] = []

    def check(self) -> None:
        counts = Counter(block for owner in self.owners for block in owner)
        assert [counts[block] for block in range(9)] == list(self.pool.refs)
        assert sorted([*counts, *self.pool.free]) == list(range(1, 9)) and self.pool.num_used == len(counts)
        assert self.pool.num_shared == sum(counts.values()) - len(counts)
        assert {block: key for key, block in self.pool.blocks.items()} == self.pool._keys


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["take", "hold", "give", "name"]), st.integers(0, 7), st.integers(1, 4))))
def test_blocks_are_free_cached_or_held_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    books = Books()
    pool, owners = books.pool, books.owners
    for step, which, count in steps:
        if step == "take" and count <= pool.num_free:
            held = {block for owner in owners for block in owner}
            owners.append(pool.take(count))
            assert not held & {*owners[-1]}, "a held block was evicted"
        elif step == "hold":
            cached = [*pool.blocks.values()][:count]
            pool.hold(cached)
            owners.append(type(pool.take(0))("i", cached))
        elif owners and step == "give":
            pool.give(owners.pop(which % len(owners)))
        elif owners and step == "name" and owners[which % len(owners)]:
            pool.name(owners[which % len(owners)][0], ("key", which))
        books.check()


# Drafts


def test_a_hit_is_attached_and_taken_back_without_a_trace() -> None:
    """Cached blocks that nobody holds leave the free ones with the first who attaches them, and not again."""
    desk = Desk("fcfs", limits(**CACHED, num_kv_blocks=30))
    started(desk, alike(0))
    one, other = desk.submit(alike(1), alike(2))
    assert one.num_computed_tokens == 8 and not one.blocks
    builder = desk.builder()
    builder.admit(one), builder.admit(other)
    assert builder.free_blocks == 30 and builder.blocks_needed(one, 1) == 9
    assert builder.prefill(one, 1) and builder.free_blocks == 21 and builder.blocks_needed(other, 1) == 1
    assert builder.prefill(other, 1) and builder.free_blocks == 20
    assert builder.unschedule(one) and builder.free_blocks == 21 and {*builder.plan.hits} == {other}
    assert builder.unschedule(other) and builder.free_blocks == 30 and not builder.plan.hits
    assert builder.prefill(one, 1) and builder.free_blocks == 21


def test_an_attempt_that_is_undone_lets_go_of_its_hits() -> None:
    desk = Desk("fcfs", limits(**CACHED, num_kv_blocks=30))
    started(desk, alike(0))
    one, other = desk.submit(alike(1), alike(2))
    builder = desk.builder()
    builder.admit(one), builder.admit(other)
    assert builder.prefill(other, 1) and builder.free_blocks == 21
    attempt = builder.attempt()
    assert builder.prefill(one, 1) and builder.free_blocks == 20
    attempt.undo()
    assert builder.free_blocks == 21 and {*builder.plan.hits} == {other} and builder.blocks_needed(one, 1) == 1
    assert builder.unschedule(other) and builder.free_blocks == 30 and builder.blocks_needed(one, 1) == 9


def test_blocks_kept_for_later_begin_with_the_hit() -> None:
    """All of its 8 cached blocks and one more are its own from then on, though nothing is computed yet."""
    desk = Desk("fcfs", limits(**CACHED, num_kv_blocks=30))
    started(desk, alike(0))
    (one,) = desk.submit(alike(1))
    builder = desk.builder()
    builder.admit(one)
    assert builder.keep_blocks(one, 0) and builder.free_blocks == 30 and not builder.plan.hits
    assert builder.keep_blocks(one, 1) and builder.free_blocks == 21 and {*builder.plan.hits} == {one}
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    assert len(one.blocks) == 9 and (one.num_computed_tokens, one.num_cached_tokens) == (8, 8) and not one.hit
    assert desk.step().prefill == ((1, 1),)


def test_preempting_one_of_two_frees_only_what_the_other_does_not_hold() -> None:
    desk = Desk("fcfs", limits(**CACHED, num_kv_blocks=30, capacity="max_utilization"))
    started(desk, alike(0))
    one, other = desk.submit(alike(1, 10, 9), alike(2, 12, 9))
    desk.step()
    assert desk.state.pool.num_used == 8 + 2 + 4
    builder = desk.builder()
    assert builder.preempt(one) and builder.free_blocks == 16 + 2
    assert builder.preempt(other) and builder.free_blocks == 30


@pytest.mark.parametrize("policy", [kind for kind in POLICIES if kind not in MAX_UTILIZATION])
def test_no_evict_reserves_what_is_shared_once(policy: str) -> None:
    """Two of 8 + 1 + 3 blocks fit 16 where they share 8 of them; without caching they follow each other."""
    for cached, at_once in ((True, 2), (False, 1)):
        desk = Desk(policy, limits(enable_prefix_caching=cached, block_size=1, num_kv_blocks=16))
        first, second = desk.submit(alike(0, output=4), alike(1, output=4))
        desk.step()
        desk.step()
        assert sum(bool(r.blocks) for r in (first, second)) == at_once
        desk.steps()
        assert desk.state.pool.num_used == 0


def test_who_loses_items_of_its_hit_charges_its_footprint_anew() -> None:
    """A decode evicts the first image behind which the others were charged: holding those it would wait for it."""
    desk = Desk("footprint", limits(**CACHED, num_kv_blocks=14, encoder_max_num_items=1, capacity="max_utilization"))
    first = Sized(1, 3, "a")
    desk.submit(request(0, output=8), request(1, [first]), request(2, text=9))
    desk.step()
    assert desk.state.num_active == 1 and desk.state.pool.num_free == 13
    (late,) = desk.submit(request(3, [first, *(Sized(1, 1, key) for key in "bcd")]))
    assert late.num_computed_tokens == 3 and late.next_item == 1
    desk.step()
    assert {*late.holds} == {1, 2, 3}
    desk.step()
    assert late.num_computed_tokens == 2 and late.next_item == 0 and not late.holds
    desk.steps()
    assert late.num_generated == 1 and desk.state.cache.held_rows == 0


def test_decodes_that_evict_what_somebody_would_find_are_looked_at_one_by_one() -> None:
    """As soon as its image is no longer in the cache, eager encodes it, though there is no room for the request yet."""
    image = Sized(1, 3, "a")
    asked = [
        request(0, [image]),
        request(1, text=4, output=14, arrival=MS),
        request(2, [image], output=9, arrival=2 * MS),
    ]
    tight = limits(**CACHED, num_kv_blocks=17, encoder_cache_reuse=False)
    quick, slow = (serve(asked, "eager", tight, fast_path=fast_path) for fast_path in (True, False))
    assert_same(quick, slow)
    table = quick.iterations
    encodes = table.index[table["num_items"] > 0]
    assert len(encodes) == 2 and table["num_decodes"][encodes[1]] == 1 and len(quick.steps) < len(slow.steps)


def test_only_whole_blocks_are_found_and_one_token_is_always_computed() -> None:
    for block_size, found in ((1, 8), (2, 8), (3, 6), (4, 8), (8, 8), (9, 0)):
        desk = Desk("fcfs", limits(enable_prefix_caching=True, block_size=block_size))
        started(desk, alike(0), alike(1, 8))
        (late,) = desk.submit(alike(2))
        assert late.num_computed_tokens == found
        (same,) = desk.submit(alike(3, 8))
        assert same.num_computed_tokens == 7 // block_size * block_size


def test_an_offloaded_request_that_finds_all_but_one_token_waits_as_others_do() -> None:
    """hf_rows: it is no decode that was left out, so although there is room at once it waits until somebody finishes.

    By then 0 has taken three of the six blocks that it would have found.
    """
    asked = [request(id, text=2, output=9) for id in range(3)]
    ran = serve(asked, "hf_rows", limits(**CACHED, num_kv_blocks=19), fast_path=False, cancels={1: 11 * MS // 2})
    assert ran.requests[2].num_preemptions == 1 and ran.status == {0: "finished", 1: "cancelled", 2: "finished"}
    (again,) = (n for n, step in enumerate(ran.steps) if n and step.prefill)
    assert ran.steps[again].prefill == ((2, 2 + 5 - 3),)
    assert ran.steps[again - 1].decodes == (0,) and not any(0 in step.decodes for step in ran.steps[again:])
