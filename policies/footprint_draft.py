"""What a plan in the making does with several items at once: reserve, charge, encode all of them, take some back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Iterable

from policies.attempt import Attempt
from policies.encoder_draft import EncoderDraft
from policies.request_state import RequestState


class FootprintDraft(EncoderDraft, ABC):
    """Rows of whole requests, and what can be had of them together."""

    @abstractmethod
    def attempt(self) -> Attempt:
        """What is taken from here on can be undone together."""

    def encode_per_request(self) -> bool:
        """Call the encoder once for each request, one after the other, instead of once for all items."""
        self.plan.encodes_per_request = True
        return True

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
        self.rows_left -= rows
        self.claimed.update(request.keys[i] for i in missing)
        for index in missing:
            entry = self.state.cache.get(request.keys[index])
            if entry is not None and entry.ready:
                self.plan.attached.append((request, index))
                self._obtain(request, index)
            else:
                self.plan.charged.append((request, index))
        return True

    def has_room(self, request: RequestState) -> bool:
        """Whether `charge` would take the request's whole footprint."""
        missing = [i for i in self.missing(request) if i not in request.holds]
        return self._rows_of(request, missing) <= max(0, self.rows_left - self.reserved_rows)

    def encode_all(self, request: RequestState, indices: Iterable[int]) -> bool:
        """Encode or attach all of these items, or none."""
        attempt = self.attempt()
        for index in [*indices]:
            if not self.encode(request, index):
                attempt.undo()
                return False
        return True

    def reclaim(self, request: RequestState, index: int) -> bool:
        """Take a finished output back from its only holder, whose prefill has not come to it: it is encoded again.

        Nobody gets it again in this iteration without paying for it.
        """
        entry, plan = request.holds.get(index), self.plan
        if entry is None or not entry.ready or entry.num_holds > 1 or entry.key in self.reclaimed:
            return False
        if request in plan.preempted or any(r.keys[i] == entry.key for r, i in (*plan.attached, *plan.charged)):
            return False
        if request.items[index].offset < self._end(request):
            return False
        plan.reclaimed.append((request, index))
        self.reclaimed.add(entry.key)
        self.rows_left += entry.num_rows
        insort(self.missing(request), index)
        return True

    def _end(self, request: RequestState) -> int:
        """How far prefill will have come after this iteration."""
        return request.num_computed_tokens + sum(tokens for r, tokens in self.plan.prefill if r is request)

    def _rows_of(self, request: RequestState, indices: list[int]) -> int:
        """Rows that holding these items would newly take, each key once."""
        rows, seen, cache = 0, set(self.claimed), self.state.cache
        for index in indices:
            key = request.keys[index]
            entry = cache.get(key)
            if key not in seen and (entry is None or entry.num_holds == 0):
                rows += request.items[index].embeds
            seen.add(key)
        return rows
