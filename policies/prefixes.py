"""Prefix caching: how much of each request that has not started yet is in KV blocks already, and who attaches it."""

from __future__ import annotations

from array import array

from policies.block_keys import BlockKey, BlockKeys
from policies.encoder_cache import EncoderCache
from policies.items import release_all, release_computed
from policies.plan import IterationPlan
from policies.prefix_pool import PrefixPool
from policies.request_state import RequestState


class Prefixes:
    """By the rules of vLLM (v1/core/kv_cache_manager.py): whole blocks from the prompt's first one on, up to the first
    that is not there, and never the last token, whose logits are wanted. A request takes them when its prefill begins,
    and until then keeps none of them from being evicted.

    Blocks can be found once the iteration that computes them is complete (vLLM's already in the same batch). Answers
    are kept too, for their own request after a preemption; no other prompt continues them.
    """

    def __init__(self, pool: PrefixPool, cache: EncoderCache, *, keeps_items: bool) -> None:
        """With `keeps_items`, whoever has outputs that its hit makes superfluous keeps them until it starts."""
        self.pool = pool
        self._cache = cache
        self._keeps_items = keeps_items
        self._starting: dict[RequestState, list[BlockKey]] = {}  # not started; with the keys that its hit depends on
        self._stopped: dict[RequestState, None] = {}  # since the last refresh
        self.watched: dict[BlockKey, dict[RequestState, int]] = {}  # who depends on each key, for which block

    def enter(self, request: RequestState) -> None:
        """A request joins the queue."""
        request.block_keys = BlockKeys(request.request, self.pool.block_size)
        self._look_up(request, 0)

    def start(self, plan: IterationPlan) -> None:
        """Whoever has its first chunk, or blocks kept for it, takes its hit, before any is evicted for the others."""
        for request, _ in (*plan.prefill, *plan.kept_blocks):
            if request not in self._starting:
                continue
            self._forget(request)
            if hit := plan.hits.get(request):
                self.pool.hold(hit)
                request.blocks += array("i", hit)
            if not request.num_preemptions:
                request.num_cached_tokens = request.num_computed_tokens
            request.hit = ()

    def computed(self, request: RequestState, num_tokens: int) -> None:
        """Its next `num_tokens` were computed: the full blocks among them that others may want can be found."""
        keys, size, start = request.block_keys, self.pool.block_size, request.num_computed_tokens
        assert keys is not None
        for index in range(start // size, min((start + num_tokens) // size, keys.num_shareable)):
            self.pool.name(request.blocks[index], keys.key(index))

    def stop(self, request: RequestState) -> None:
        """It is about to give its blocks back and to start again: what it computed alone can be found by itself."""
        keys, full = request.block_keys, request.num_computed_tokens // self.pool.block_size
        assert keys is not None
        for index in range(keys.num_shareable, min(full, len(request.blocks))):
            self.pool.name(request.blocks[index], keys.key(index))
        self._stopped[request] = None

    def leave(self, request: RequestState) -> None:
        """It is gone."""
        self._forget(request)
        self._stopped.pop(request, None)
        request.hit = ()

    def refresh(self) -> None:
        """Look again for everybody whose hit depends on what has come or gone; not while an iteration is under way."""
        stale = dict.fromkeys(self._stopped, 0)
        for key in self.pool.changed:
            for request, index in self.watched.get(key, {}).items():
                stale[request] = min(index, stale.get(request, index))
        self._stopped.clear()
        self.pool.changed.clear()
        for request, index in stale.items():
            self._look_up(request, index)

    def _look_up(self, request: RequestState, first: int) -> None:
        """From the block at that index on; those before it are as they were."""
        size, keys, blocks = self.pool.block_size, self._starting.setdefault(request, []), self.pool.blocks
        found = array("i", request.hit[:first])
        self._unwatch(request, first)
        assert request.block_keys is not None
        for index in range(first, (request.target - 1) // size):
            keys.append(key := request.block_keys.key(index))
            self.watched.setdefault(key, {})[request] = index
            block = blocks.get(key)
            if block is None:
                break
            found.append(block)
        self._set_hit(request, found)

    def _set_hit(self, request: RequestState, found: array[int]) -> None:
        """Items wholly inside need no encoding. Whoever loses some of them again, and has no outputs of theirs, charges
        its items anew, as a whole.
        """
        before = request.next_item
        request.hit = found
        request.num_computed_tokens = computed = len(found) * self.pool.block_size
        request.num_items_ahead = sum(item.offset + item.length > computed for item in request.items)
        if any(index not in request.holds for index in range(request.next_item, before)):
            release_all(self._cache, request)
            request.encoded = frozenset()
        elif request.holds and not self._keeps_items:
            release_computed(self._cache, request)

    def _unwatch(self, request: RequestState, first: int = 0) -> None:
        keys = self._starting.get(request, [])
        for key in keys[first:]:
            watchers = self.watched[key]
            del watchers[request]
            if not watchers:
                del self.watched[key]
        del keys[first:]

    def _forget(self, request: RequestState) -> None:
        self._unwatch(request)
        self._starting.pop(request, None)
