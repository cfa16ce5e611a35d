"""The encoder's side of a plan in the making: which items to encode, attach, charge or reserve rows for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from policies.encoder_cache import Key
from policies.plan import Blocked, IterationPlan
from policies.request_state import RequestState
from policies.serving import UNBOUNDED, ServingState


class EncoderDraft:
    """Items, encoder tokens and encoder-cache rows of one iteration, spent in the draft alone."""

    reserved_rows = 0  # of rows_left, kept for the first request left incomplete
    _reserved_for: RequestState | None = None

    def __init__(self, state: ServingState) -> None:
        self.state = state
        self.plan = IterationPlan()
        self.encoder_items_left = state.encoder_max_num_items
        self.encoder_tokens_left = state.encoder_max_num_tokens
        self.rows_left = (state.encoder_cache_rows if state.cache.references else UNBOUNDED) - state.cache.held_rows
        self.claimed: set[Key] = set()  # keys that this draft takes rows for, or revives
        self.encoding: set[Key] = set()  # keys that this draft encodes
        self.reclaimed: set[Key] = set()  # keys whose only hold this draft takes back
        self._missing: dict[RequestState, list[int]] = {}  # of whom it was asked, less what this draft obtains

    def missing(self, request: RequestState) -> list[int]:
        """Items of the request that prefill needs and that neither the cache nor this draft has for it."""
        if not request.num_items_ahead:
            return []
        missing = self._missing.get(request)
        if missing is None:
            missing = self._missing[request] = request.missing()
        return missing

    def ready(self, request: RequestState) -> bool:
        """Whether every item is there when this iteration's prefill begins (encoding comes before it)."""
        return not request.num_items_ahead or not self.missing(request)

    def attach(self, request: RequestState, index: int) -> bool:
        """Hold an output that is there already, or being encoded in this draft: no budget is spent."""
        key = request.keys[index]
        if key not in self.encoding:
            entry = self.state.cache.get(key)
            if entry is None or not entry.ready or (request, index) in self.plan.reclaimed:
                return False
            if not self._revive(key, 0 if key in self.reclaimed else entry.num_holds, entry.num_rows):
                return False
        self.plan.attached.append((request, index))
        self._obtain(request, index)
        return True

    def _revive(self, key: Key, num_holds: int, num_rows: int) -> bool:
        """A released entry that is held again can no longer make room for others; what is reserved stays reserved."""
        if num_holds == 0 and key not in self.claimed:
            if num_rows > self.rows_left - self.reserved_rows:
                return False
            self.rows_left -= num_rows
            self.claimed.add(key)
        return True

    def attach_hits(self, requests: Iterable[RequestState]) -> None:
        """Attach whatever the cache has of each request's items, in prompt order."""
        entries = self.state.cache.entries
        for request in requests:
            if request.num_items_ahead:
                for index in [*self.missing(request)]:
                    if request.keys[index] in entries:
                        self.attach(request, index)

    def encode(self, request: RequestState, index: int, *, alone: bool = False) -> bool:
        """Encode one item in this iteration, within items, tokens and rows, or attach it where that is enough.

        With `alone`, an item that no iteration has the tokens for is encoded too: as the only one.
        """
        if self.attach(request, index):
            return True
        item, key = request.items[index], request.keys[index]
        alone = alone and item.encoder_tokens > self.state.encoder_max_num_tokens and not self.plan.encode
        if (spent := self._spent(item.encoder_tokens, alone)) or (request, index) in self.plan.reclaimed:
            self.plan.blocked[request] = Blocked(spent or "rows", index, item.embeds)
            return False
        if index not in request.holds and not self._claim(request, index, key, item.embeds):
            return False
        self.encoder_items_left = 0 if alone else self.encoder_items_left - 1
        self.encoder_tokens_left = 0 if alone else self.encoder_tokens_left - item.encoder_tokens
        self.encoding.add(key)
        self.plan.encode.append((request, index))
        self.plan.encoder_tokens += item.encoder_tokens
        self._obtain(request, index)
        return True

    def _spent(self, encoder_tokens: int, alone: bool) -> Literal["items", "tokens", ""]:
        if self.encoder_items_left < 1:
            return "items"
        return "tokens" if encoder_tokens > self.encoder_tokens_left and not alone else ""

    def _claim(self, request: RequestState, index: int, key: Key, num_rows: int) -> bool:
        """Take rows for an output (allocate before compute), unless the draft has them already."""
        if key in self.claimed:
            return True
        if not self._has_rows(request, index, num_rows):
            return False
        self.rows_left -= num_rows
        self.claimed.add(key)
        return True

    def _has_rows(self, request: RequestState, index: int, num_rows: int) -> bool:
        if num_rows <= max(0, self.rows_left - self.reserved_rows):
            return True
        reserved = num_rows <= self.rows_left
        self.plan.blocked[request] = Blocked("reservation" if reserved else "rows", index, num_rows)
        return False

    def _obtain(self, request: RequestState, index: int) -> None:
        self.missing(request).remove(index)
