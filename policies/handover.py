"""Requests that go on from one engine to another: what both of them keep and take meanwhile, so that nothing is lost.

An engine gives nothing back before the next one has it, and the next one takes all it needs before anything is sent.
"""

from __future__ import annotations

from policies.blocks import BlockPool, Blocks, no_blocks
from policies.decodes import DecodeCohort
from policies.encoder_cache import EncoderEntry
from policies.items import hold, hold_or_charge
from policies.limits import Limits
from policies.request_state import RequestState
from policies.serving import ServingState


class Departures(DecodeCohort):
    """In the place of the running decodes: who has its first token and decodes elsewhere."""

    def __init__(self, pool: BlockPool) -> None:
        super().__init__(pool)
        self.leaving: list[RequestState] = []  # with nobody told yet
        self.away: dict[RequestState, tuple[Blocks[int], int]] = {}  # their blocks, and how many were reserved

    def join(self, request: RequestState) -> None:
        self.leaving.append(request)
        self.away[request] = request.blocks, request.max_blocks
        self.num_blocks += request.max_blocks
        request.blocks = no_blocks()


class PrefillState(ServingState):
    """An engine whose requests decode elsewhere: their KV blocks stay until they are there."""

    decodes: Departures

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.leaving = self.decodes.leaving

    def _new_decodes(self) -> Departures:
        return Departures(self.pool)

    def submit(self, request: RequestState) -> None:
        super().submit(request)
        request.max_blocks = self.pool.blocks_for(request.target)

    def num_blocks_of(self, request: RequestState) -> int:
        """Of one that has left."""
        return len(self.decodes.away[request][0])

    def let_go(self, request: RequestState) -> None:
        """Its KV is where it was wanted, or nobody wants it any more."""
        blocks, reserved = self.decodes.away.pop(request)
        self.pool.give(blocks)
        self.decodes.num_blocks -= reserved


class DecodeState(ServingState):
    """An engine whose requests arrive with their KV: it needs blocks for the whole answer before anything is sent."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.coming: dict[RequestState, None] = {}
        self.coming_blocks = 0  # reserved for them

    def room_for(self, request: RequestState) -> bool:
        blocks = self.decodes.num_blocks + self.coming_blocks + self.pool.blocks_for(request.max_tokens)
        return self.num_active + len(self.coming) < self.max_num_seqs and blocks <= self.pool.num_blocks

    def reserve(self, request: RequestState) -> None:
        request.max_blocks = self.pool.blocks_for(request.max_tokens)
        request.blocks = self.pool.take(self.pool.blocks_for(request.num_computed_tokens))
        self.coming[request] = None
        self.coming_blocks += request.max_blocks

    def receive(self, request: RequestState) -> None:
        """It is here: it decodes from the next iteration on, if somebody submits it."""
        del self.coming[request]
        self.coming_blocks -= request.max_blocks

    def submit(self, request: RequestState) -> None:
        request.order = self.num_admitted
        self.num_admitted += 1
        self.decodes.join(request)


class ItemsArrive(ServingState):
    """Its requests arrive encoded: rows for all items of one are taken before any is sent, so nobody holds only some.

    Whoever lost its rows to a preemption encodes here once more; until it has them nobody else is let in.
    """

    overlaps = True

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.coming: dict[RequestState, list[EncoderEntry]] = {}  # with the outputs that are being sent for it

    def room_for(self, request: RequestState) -> bool:
        if any(other.num_items_ahead and other.missing() for other in self.contexts):
            return False
        return self.rows_for(request) <= self.encoder_cache_rows - self.cache.held_rows

    def rows_for(self, request: RequestState) -> int:
        """That it would newly take, each key once."""
        rows = {}
        for key, item in zip(self._keys(request), request.items, strict=True):
            entry = self.cache.get(key)
            if entry is None or entry.num_holds == 0:
                rows[key] = item.embeds
        return sum(rows.values())

    def _keys(self, request: RequestState) -> tuple[tuple[object, ...], ...]:
        if not self.limits.encoder_cache_reuse:
            request.use_own_keys()
        return request.keys

    def reserve(self, request: RequestState) -> int:
        """How many rows have to be sent: those of outputs that are not here yet, nor on their way."""
        missing = [index for index in range(len(self._keys(request))) if not hold(self.cache, request, index)]
        fresh = self.coming[request] = []
        for index in missing:
            if not hold(self.cache, request, index):
                hold_or_charge(self.cache, request, index)
                self.cache.launch(request.holds[index])
                fresh.append(request.holds[index])
        return sum(entry.num_rows for entry in fresh)

    def receive(self, request: RequestState) -> None:
        """They are here."""
        for entry in self.coming.pop(request):
            entry.ready = True


class EncodedState(ItemsArrive):
    """Prefills what arrives encoded, and decodes it."""


class EncodedPrefillState(ItemsArrive, PrefillState):
    """Prefills what arrives encoded, to be decoded elsewhere."""
