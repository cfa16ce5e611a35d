"""The encoder's side of a plan in the making: which items to encode, attach, charge or reserve rows for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from policies.encoder_cache import Key
from policies.plan import Blocked
from policies.request_state import RequestState
from policies.row_draft import RowDraft


class EncoderDraft(RowDraft):
    """Items, encoder tokens and encoder-cache rows of one iteration, spent in the draft alone."""

    reserved_rows = 0  # of rows_left, kept for the first request left incomplete
    _reserved_for: RequestState | None = None

    def missing(self, request: RequestState) -> list[int]:
        """Items of the request that prefill needs and that neither the cache nor this draft has for it."""
        if not request.num_items_ahead:
            return []
        missing = self._missing.get(request)
        if missing is None:
            missing = self._missing[request] = request.missing()
        return missing

    def ready(self, request: RequestState) -> bool:
        """Whether every item is there when this iteration's prefill begins."""
        return not request.num_items_ahead or not self.unready(request)

    def unready(self, request: RequestState) -> list[int]:
        """Items not passed yet that will not be there when this iteration's prefill begins.

        Encoding comes before it, unless it is on a side stream; what is in flight is not there.
        """
        missing = self.missing(request)
        if not self.state.overlaps:
            return missing
        ahead = range(request.next_item, len(request.items))
        return [index for index in ahead if index in missing or not self._there(request.keys[index])]

    def _there(self, key: Key) -> bool:
        """Of an output that is not missing."""
        if key in self._encoding:
            return not self.state.lands_later
        entry = self.state.cache.get(key)
        return entry is not None and entry.ready

    def namesake(self, key: Key) -> Key | None:
        """Another output, cached or encoded in this draft, with that modality and content key but not of that size."""
        if key[0] == "temporary":
            return None
        for other in (*self.state.cache.entries, *self._encoding):
            if other[:2] == key[:2] and other != key and (other in self._encoding or self._cached(other)):
                return other
        return None

    def attach(self, request: RequestState, index: int) -> bool:
        """Hold an output that is there already, or being encoded in this draft: no budget is spent."""
        key, num_rows = request.keys[index], request.items[index].embeds
        entry = self._cached(key)
        if key not in self._encoding:
            if entry is None or entry.pending or (request, index) in self.plan.reclaimed:
                return False
            # a released entry that is held again can no longer make room for others; what is reserved stays reserved
            if not self._is_held(key, entry) and num_rows > self.rows_left - self.reserved_rows:
                return False
        if index not in request.holds:
            self._take_rows(key, num_rows, entry)
        self.plan.attached.append((request, index))
        self._obtain(request, index)
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
        cost = self.state.limits.encoder_cost(item)
        alone = alone and cost > self.state.encoder_max_num_tokens and not self.plan.encode
        if self.encoder_items_left < 1 or (cost > self.encoder_tokens_left and not alone):
            spent: Literal["items", "tokens"] = "items" if self.encoder_items_left < 1 else "tokens"
            self.plan.blocked[request] = Blocked(spent, index, item.embeds)
            return False
        if (request, index) in self.plan.reclaimed:
            self.plan.blocked[request] = Blocked("rows", index, item.embeds)
            return False
        if index not in request.holds and not self._claim(request, index, key, item.embeds):
            return False
        self.encoder_items_left = 0 if alone else self.encoder_items_left - 1
        self.encoder_tokens_left = 0 if alone else self.encoder_tokens_left - cost
        self._encoding.add(key)
        self.plan.encode.append((request, index))
        self.plan.encoder_tokens += item.encoder_tokens
        self._obtain(request, index)
        return True

    def _claim(self, request: RequestState, index: int, key: Key, num_rows: int) -> bool:
        """Take rows for an output (allocate before compute), unless the draft has them already."""
        entry = self._cached(key)
        if not self._is_held(key, entry) and not self._has_rows(request, index, num_rows):
            return False
        self._take_rows(key, num_rows, entry)
        return True

    def _has_rows(self, request: RequestState, index: int, num_rows: int) -> bool:
        if num_rows <= max(0, self.rows_left - self.reserved_rows):
            return True
        reserved = num_rows <= self.rows_left
        self.plan.blocked[request] = Blocked("reservation" if reserved else "rows", index, num_rows)
        return False

    def reserve(self, request: RequestState) -> bool:
        """Keep the rows that the request still misses from all later ones; only the first to ask gets it."""
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
        for index in missing:
            key = request.keys[index]
            entry = self._cached(key)
            self._take_rows(key, request.items[index].embeds, entry)
            if entry is not None and not entry.pending:
                self.plan.attached.append((request, index))
                self._obtain(request, index)
            else:
                self.plan.charged.append((request, index))
        return True

    def _rows_of(self, request: RequestState, indices: list[int]) -> int:
        """Rows that holding these items would newly take, each key once."""
        wanted = {request.keys[index]: request.items[index].embeds for index in indices}
        return sum(rows for key, rows in wanted.items() if not self._is_held(key, self._cached(key)))

    def _obtain(self, request: RequestState, index: int) -> None:
        self.missing(request).remove(index)
