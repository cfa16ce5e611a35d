"""What must be true of shared KV blocks, and a shadow of what each block holds, token by token."""

from __future__ import annotations

from collections import Counter
from typing import Any

from policies.plan import IterationPlan
from policies.prefix_state import CachingState
from policies.request_state import RequestState
from workloads.request import Request


def tokens_of(request: Request) -> list[Any]:
    """What each prompt token says, written out: equal entries are equal tokens."""
    size, hashes = request.hash_block_size, request.block_hashes
    told: list[Any] = [(request.id, place) for place in range(request.prompt_tokens)]
    for place in range(min(request.prompt_tokens, size * len(hashes))):
        told[place] = ("text", size, hashes[place // size], place % size)
    inside = {place for item in request.items for place in range(item.offset, item.offset + item.length)}
    for item in request.items:
        if item.offset + item.length < request.prompt_tokens:
            told[item.offset + item.length] = "end"
    for item in request.items:
        if item.offset and item.offset - 1 not in inside:
            told[item.offset - 1] = "start"
        for row in range(item.length if item.key is not None else 0):
            told[item.offset + row] = (item.modality, item.key, item.grid, item.embeds, row)
    for item in request.items:
        for row in range(item.length if item.key is None else 0):
            told[item.offset + row] = (request.id, item.offset + row)
    return told


class Shadow:
    """The KV tensors as a table from slots to prefixes: a token's keys depend on all that comes before it."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], int] = {}
        self._prefixes: dict[int, list[int]] = {}
        self.num_hits = 0

    def begin(self, state: CachingState, plan: IterationPlan) -> None:
        """Before it: what preempted decodes have written."""
        state.decodes.settle()
        for request in plan.preempted:
            if request in state.decodes.members:
                computed = request.num_computed_tokens + state.decodes.steps - request.joined
                self._write(state, request, 0, computed)

    def begun(self, state: CachingState, plan: IterationPlan) -> None:
        """After it: every hit holds the very tokens of who attached it, and not all of them."""
        size = state.pool.block_size
        for request, hit in plan.hits.items():
            self.num_hits += 1
            assert list(request.blocks[: len(hit)]) == list(hit), "a hit is not at the head of the block table"
            assert len(hit) * size == request.num_computed_tokens < request.target
            for place in range(len(hit) * size):
                found = self._slots[hit[place // size], place % size]
                assert found == self._prefix(request)[place], f"{request} found other tokens at {place}"

    def complete(self, state: CachingState, plan: IterationPlan) -> None:
        """Before it: what the chunks have written, none of it into a block that somebody else reads."""
        for request, tokens in plan.prefill:
            if request in state.contexts:
                start, size = request.num_computed_tokens, state.pool.block_size
                written = {request.blocks[place // size] for place in range(start, start + tokens)}
                assert all(state.prefixes.pool.refs[block] == 1 for block in written)
                self._write(state, request, start, start + tokens)

    def _write(self, state: CachingState, request: RequestState, start: int, end: int) -> None:
        size = state.pool.block_size
        for place in range(start, end):
            self._slots[request.blocks[place // size], place % size] = self._prefix(request)[place]

    def _prefix(self, request: RequestState) -> list[int]:
        if request.id not in self._prefixes:
            answer = [(request.id, "answer", index) for index in range(request.request.output_tokens)]
            prefixes, last = [], 0
            for token in (*tokens_of(request.request), *answer):
                last = hash((last, token))
                prefixes.append(last)
            self._prefixes[request.id] = prefixes
        return self._prefixes[request.id]


def check_prefixes(state: CachingState, requests: list[RequestState], owned: list[int]) -> None:
    """Free, cached and held blocks counted once are all there are; references are right; hits are what there is."""
    prefixes = state.prefixes
    pool, free = prefixes.pool, [*prefixes.pool.free]
    counts = Counter(owned)
    assert [counts[block] for block in range(pool.num_blocks + 1)] == list(pool.refs), "references are miscounted"
    assert pool.num_shared == sum(count - 1 for count in counts.values())
    cached = [block for block in free if block in pool._keys]
    assert len(free) == len(set(free)) and pool.num_free == len(free)
    assert len(free) - len(cached) + len(cached) + len(counts) == pool.num_blocks
    assert {block: key for key, block in pool.blocks.items()} == pool._keys
    starting = [*state.waiting, *(r for r in state.contexts if not r.blocks)]
    unknown = {*prefixes._starting} ^ {*starting}
    assert unknown <= {*prefixes._stopped}, "who has not started is not looked up for"
    assert {r for watchers in prefixes.watched.values() for r in watchers} <= {*prefixes._starting}
    assert not any(r.hit for r in requests if r not in prefixes._starting)
    if not pool.changed and not prefixes._stopped:
        for request in starting:
            _check_hit(state, request)
    _check_reservations(state)


def _check_hit(state: CachingState, request: RequestState) -> None:
    """Looked up once more."""
    assert request.block_keys is not None
    size, found = state.pool.block_size, []
    while (len(found) + 1) * size < request.target:
        block = state.prefixes.pool.blocks.get(request.block_keys.key(len(found)))
        if block is None:
            break
        found.append(block)
    assert list(request.hit) == found, f"the hit of {request} is out of date"
    assert request.num_computed_tokens == len(found) * size
    ends = [item.offset + item.length for item in request.items]
    assert request.num_items_ahead == sum(end > request.num_computed_tokens for end in ends)


def _check_reservations(state: CachingState) -> None:
    """Who has started can be served to the end without taking anything from anybody."""
    if state.limits.capacity == "no_evict":
        reserved = sum(r.max_blocks for r in state.contexts if r.blocks) + state.decodes.num_blocks
        assert reserved - state.prefixes.pool.num_shared <= state.pool.num_blocks
