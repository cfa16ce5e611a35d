"""A plan in the making: the only hands on the budgets, through which a policy drafts the next iteration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from policies.encoder_cache import Key
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import ServingState


class Blocked(NamedTuple):
    """What refused a request's item: `items`, `tokens` or `rows` that are spent, or a `reservation` of rows."""

    why: Literal["items", "tokens", "rows", "reservation"]
    item: int  # index of the item, in the request's prompt
    num_rows: int  # that were asked for


class PlanBuilder:
    """Each verb takes all that it names, or changes nothing and says False; a question never changes the answer.

    Nothing outside the draft changes before `ServingState.begin` gets the plan.
    """

    __slots__ = (
        "_claimed",
        "_encoding",
        "_obtained",
        "_reserved_for",
        "_seats",
        "contexts",
        "encoder_items_left",
        "encoder_tokens_left",
        "free_blocks",
        "now",
        "plan",
        "reserved_rows",
        "rows_left",
        "state",
        "tokens_left",
    )

    def __init__(self, state: ServingState, now: int) -> None:
        self.state = state
        self.now = now  # nanoseconds: all that a policy knows of time
        self.plan = IterationPlan()
        self.tokens_left = state.max_num_batched_tokens
        self.encoder_items_left = state.encoder_max_num_items
        self.encoder_tokens_left = state.encoder_max_num_tokens
        self.free_blocks = len(state.pool.free)
        self.rows_left = state.encoder_cache_rows - state.cache.held_rows
        self.reserved_rows = 0  # of rows_left, kept for the first request left incomplete
        self.contexts = [*state.contexts]  # active, not decoding yet, newly admitted ones included; first come first
        self._reserved_for: RequestState | None = None
        self._seats = state.max_num_seqs - len(state.contexts) - len(state.decodes)
        self._claimed: set[Key] = set()  # keys that this draft takes rows for, or revives
        self._encoding: set[Key] = set()  # keys that this draft encodes
        self._obtained: dict[RequestState, set[int]] = {}  # items that this draft encodes or attaches

    # Questions

    @property
    def waiting(self) -> Iterable[RequestState]:
        """Requests not admitted yet, in the order in which they left the front end."""
        return self.state.waiting

    def missing(self, request: RequestState) -> list[int]:
        """Items of the request that prefill needs and that neither the cache nor this draft has for it."""
        if request.next_item == len(request.items):
            return []
        obtained = self._obtained.get(request)
        missing = request.missing()
        return [i for i in missing if i not in obtained] if obtained else missing

    def ready(self, request: RequestState) -> bool:
        """Whether every item is there when this iteration's prefill begins (encoding comes before it)."""
        return request.next_item == len(request.items) or not self.missing(request)

    @property
    def blocks_to_decode(self) -> int:
        """KV blocks that this iteration's decodes cross into."""
        decodes = self.state.decodes
        return decodes.num_crossing - sum(map(decodes.crosses, self.plan.preempted))

    # Admission

    def admit(self, request: RequestState) -> bool:
        """Give the head of the waiting queue a seat among `max_num_seqs`."""
        if self._seats <= 0:
            return False
        self._seats -= 1
        self.plan.admitted.append(request)
        self.contexts.append(request)
        return True

    # The encoder

    def attach(self, request: RequestState, index: int) -> bool:
        """Hold an output that is there already, or being encoded in this draft: no budget is spent (S7)."""
        key = request.keys[index]
        if key not in self._encoding:
            entry = self.state.cache.get(key)
            if entry is None or not entry.ready or not self._revive(key, entry.num_holds, entry.num_rows):
                return False
        self.plan.attached.append((request, index))
        self._obtain(request, index)
        return True

    def _revive(self, key: Key, num_holds: int, num_rows: int) -> bool:
        """A released entry that is held again can no longer make room for others; what is reserved stays reserved."""
        if num_holds == 0 and key not in self._claimed:
            if num_rows > self.rows_left - self.reserved_rows:
                return False
            self.rows_left -= num_rows
            self._claimed.add(key)
        return True

    def attach_hits(self, requests: Iterable[RequestState]) -> None:
        """Attach whatever the cache has of each request's items, in prompt order."""
        for request in requests:
            if request.has_items_ahead:
                for index in self.missing(request):
                    self.attach(request, index)

    def encode(self, request: RequestState, index: int) -> bool:
        """Encode one item in this iteration, within items, tokens and rows, or attach it where that is enough."""
        if self.attach(request, index):
            return True
        item, key = request.items[index], request.keys[index]
        if self.encoder_items_left < 1 or item.encoder_tokens > self.encoder_tokens_left:
            spent: Literal["items", "tokens"] = "items" if self.encoder_items_left < 1 else "tokens"
            self.plan.blocked[request] = Blocked(spent, index, item.embeds)
            return False
        if index not in request.holds and not self._claim(request, index, key, item.embeds):
            return False
        self.encoder_items_left -= 1
        self.encoder_tokens_left -= item.encoder_tokens
        self._encoding.add(key)
        self.plan.encode.append((request, index))
        self.plan.encoder_tokens += item.encoder_tokens
        self._obtain(request, index)
        return True

    def _claim(self, request: RequestState, index: int, key: Key, num_rows: int) -> bool:
        """Take rows for an output (allocate before compute, S22), unless the draft has them already."""
        if key in self._claimed:
            return True
        if not self._has_rows(request, index, num_rows):
            return False
        self.rows_left -= num_rows
        self._claimed.add(key)
        return True

    def _has_rows(self, request: RequestState, index: int, num_rows: int) -> bool:
        if num_rows <= max(0, self.rows_left - self.reserved_rows):
            return True
        reserved = num_rows <= self.rows_left
        self.plan.blocked[request] = Blocked("reservation" if reserved else "rows", index, num_rows)
        return False

    def reserve(self, request: RequestState) -> bool:
        """Keep the rows that the request still misses from all later ones; only the first to ask gets it (S23)."""
        if self._reserved_for is not None:
            return False
        self._reserved_for = request
        self.reserved_rows = self._rows_of(request, self.missing(request))
        return True

    def charge(self, request: RequestState) -> bool:
        """Hold every item the request misses, cached or not yet encoded: its whole footprint, or nothing."""
        missing = [i for i in self.missing(request) if i not in request.holds]
        rows = self._rows_of(request, missing)
        if missing and not self._has_rows(request, missing[0], rows):
            return False
        self.rows_left -= rows
        self._claimed.update(request.keys[i] for i in missing)
        for index in missing:
            entry = self.state.cache.get(request.keys[index])
            if entry is not None and entry.ready:
                self.plan.attached.append((request, index))
                self._obtain(request, index)
            else:
                self.plan.charged.append((request, index))
        return True

    def _rows_of(self, request: RequestState, indices: list[int]) -> int:
        """Rows that holding these items would newly take, each key once."""
        rows, seen, cache = 0, set(self._claimed), self.state.cache
        for index in indices:
            key = request.keys[index]
            entry = cache.get(key)
            if key not in seen and (entry is None or entry.num_holds == 0):
                rows += request.items[index].embeds
            seen.add(key)
        return rows

    def _obtain(self, request: RequestState, index: int) -> None:
        self._obtained.setdefault(request, set()).add(index)

    # The language model

    def decode(self) -> bool:
        """Run every decode that is not preempted: one token each."""
        plan, decodes = self.plan, self.state.decodes
        count, blocks = len(decodes.members), self.blocks_to_decode
        if plan.preempted:
            count -= sum(request in decodes.members for request in plan.preempted)
        if not count or count > self.tokens_left or blocks > self.free_blocks:
            return False
        plan.decode = decodes
        self.tokens_left -= count
        self.free_blocks -= blocks
        return True

    def prefill(self, request: RequestState, num_tokens: int) -> bool:
        """Compute the request's next `num_tokens`, as far as budget, KV blocks and its items allow all of them."""
        state = self.state
        end = request.num_computed_tokens + num_tokens
        blocks = max(0, -(-end // state.pool.block_size) - len(request.blocks))
        if not 0 < num_tokens <= self.tokens_left or blocks > self.free_blocks or not self._covers(request, end):
            return False
        self.tokens_left -= num_tokens
        self.free_blocks -= blocks
        self.plan.prefill.append((request, num_tokens))
        self.plan.num_prefill_tokens += num_tokens
        return True

    def _covers(self, request: RequestState, end: int) -> bool:
        """Whether all items that begin before `end` are there."""
        if request.next_item == len(request.items):
            return True
        return all(request.items[index].offset >= end for index in self.missing(request))

    def preempt(self, request: RequestState) -> bool:
        """Take everything back from a started request; it computes its tokens again later."""
        if request in self.plan.preempted:
            return False
        self.plan.preempted.append(request)
        if request in self.contexts:
            self.contexts.remove(request)
        self.free_blocks += len(request.blocks)
        return True
