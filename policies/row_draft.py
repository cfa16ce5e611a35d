"""The encoder cache as one draft leaves it: rows taken and given back, and what was evicted for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from policies.draft import Draft
from policies.encoder_cache import EncoderEntry, Key
from policies.request_state import RequestState

NONE: Mapping[Any, Any] = MappingProxyType({})


class RowDraft(Draft):
    """Holds on outputs are counted as they would stand after this draft; the cache itself stays as it is."""

    _dropped: Mapping[Key, int] = NONE  # holds that this draft takes away
    _refreshed: Mapping[Key, None] = NONE  # keys that nobody holds any more since this draft, in that order
    _evicted: dict[Key, None] | None = None  # where eviction does not wait for `begin` to need it
    _free_rows = 0  # of rows_left, those that need no eviction, where that matters

    def evict_at_once(self) -> None:
        """From here on, taking rows evicts, and that stays so if the rows are given back: a fault of vLLM's.

        Its cache manager evicts as soon as it is asked whether an item fits (vLLM 0.32, `can_allocate`), and a
        request that then does not run has refreshed what it found there.
        """
        self._evicted = self.plan.set_back().evicted = {}
        self._free_rows = self.rows_left - self.state.cache.released_rows

    def _cached(self, key: Key) -> EncoderEntry | None:
        """The output as far as this draft has left it in the cache."""
        return None if self._evicted and key in self._evicted else self.state.cache.get(key)

    def _is_held(self, key: Key, entry: EncoderEntry | None) -> bool:
        if key in self._claims:
            return True
        return entry is not None and entry.num_holds > self._dropped.get(key, 0)

    def _take_rows(self, key: Key, num_rows: int, entry: EncoderEntry | None) -> None:
        """One hold more; its rows if it is the first. The caller has asked whether there are enough."""
        if not self._is_held(key, entry):
            self.rows_left -= num_rows
            if self._evicted is not None and entry is None:
                self._evict_for(num_rows)
        self._claims[key] = self._claims.get(key, 0) + 1

    def _evict_for(self, num_rows: int) -> None:
        assert self._evicted is not None
        for entry in self._evictable():
            if self._free_rows >= num_rows:
                break
            self._evicted[entry.key] = None
            self._free_rows += entry.num_rows
        self._free_rows -= num_rows

    def _evictable(self) -> Iterator[EncoderEntry]:
        """Outputs that nobody holds as this draft stands, the one released first at the front."""
        cache, refreshed = self.state.cache, self._refreshed
        for key in [*(key for key in cache.released if key not in refreshed), *refreshed]:
            entry = self._cached(key)
            if entry is not None and not self._is_held(key, entry):
                yield entry

    def _give_rows(self, key: Key, num_rows: int) -> None:
        """One hold of this draft's less; what it would have encoded leaves nothing behind."""
        self._claims[key] -= 1
        if not self._claims[key]:
            del self._claims[key]
        entry = self._cached(key)
        if not self._is_held(key, entry):
            self.rows_left += num_rows
            if entry is None:
                self._free_rows += num_rows

    def _drop_holds(self, request: RequestState) -> None:
        """The request holds nothing any more, as after its preemption: its outputs count as released now."""
        dropped = self._dropped = {**self._dropped}
        for entry in request.holds.values():
            dropped[entry.key] = dropped.get(entry.key, 0) + 1
            if not self._is_held(entry.key, entry):
                self.rows_left += entry.num_rows
                if not self.state.cache.keeps(entry):
                    self._free_rows += entry.num_rows

    def _refresh(self, keys: list[Key]) -> None:
        """Whatever of these nobody holds counts as released just now."""
        if self._evicted is None:
            return
        free = [key for key in keys if (entry := self._cached(key)) and not self._is_held(key, entry)]
        last = [*self.state.cache.released][-len(free) :] if free else []
        if not self._refreshed and last == free:
            return  # as it is
        earlier = [key for key in self._refreshed if key not in free]
        self._refreshed = self.plan.set_back().refreshed = dict.fromkeys([*earlier, *free])
