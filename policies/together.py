"""Several things taken together or not at all, and what that needs: room for whole requests, rows taken back."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from policies.attempt import Attempt
from policies.request_state import RequestState
from policies.turns import Turns


class Together(Turns):
    """The verbs of policies that want all items of a request or a chunk, or else none of them."""

    def attempt(self) -> Attempt:
        """What is taken from here on can be undone together."""
        return Attempt(self)

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

    def encode_per_request(self) -> bool:
        """Call the encoder once for each request, one after the other, instead of once for all items."""
        self.plan.encodes_per_request = True
        return True

    def reclaim(self, request: RequestState, index: int) -> bool:
        """Take a finished output back from its only holder, whose prefill has not come to it: it is encoded again.

        Its owner does not get it back in this iteration.
        """
        entry, plan = request.holds.get(index), self.plan
        if entry is None or not entry.ready or request in plan.preempted or (request, index) in plan.reclaimed:
            return False
        if entry.num_holds > 1 or entry.key in self._claims or request.items[index].offset < self._end(request):
            return False
        plan.set_back().reclaimed = [*plan.reclaimed, (request, index)]
        self._dropped = {**self._dropped, entry.key: 1}
        self.rows_left += entry.num_rows
        insort(self.missing(request), index)
        return True

    def _end(self, request: RequestState) -> int:
        """How far prefill will have come after this iteration."""
        return request.num_computed_tokens + sum(tokens for r, tokens in self.plan.prefill if r is request)
