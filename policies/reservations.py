"""KV blocks of which something is said beforehand: for the next tokens, for a start, or for whole answers."""

from __future__ import annotations

from policies.request_state import RequestState
from policies.together import Together


class Reservations(Together):
    """Under `no_evict` every request keeps blocks for its whole answer, so that nobody is ever preempted."""

    @property
    def blocks_to_decode(self) -> int:
        """KV blocks that this iteration's decodes cross into."""
        decodes = self.state.decodes
        blocks = decodes.num_crossing()
        if self.plan.setbacks:
            blocks -= sum(map(decodes.crosses, (*self.plan.preempted, *self.plan.held_back)))
        return blocks

    def reserved(self) -> list[RequestState]:
        """Active requests whose whole answers there are blocks for, in order up to the first without."""
        state = self.state
        left = state.pool.num_blocks - state.decodes.num_blocks
        fits = []
        for request in self.contexts:
            left -= request.max_blocks
            if left < 0:
                break
            fits.append(request)
        return fits

    @property
    def unclaimed_blocks(self) -> int:
        """KV blocks that nobody active needs."""
        state = self.state
        if state.no_evict:
            return state.pool.num_blocks - state.decodes.num_blocks - sum(r.max_blocks for r in self.contexts)
        missing = sum(self.blocks_to_start(r) - len(r.blocks) for r in self.contexts)
        return self.free_blocks - self.blocks_to_decode - missing

    def blocks_to_start(self, request: RequestState) -> int:
        """Of these, what who is not active yet would need: under `no_evict` for its answer, else for its prefill."""
        return request.max_blocks if self.state.no_evict else self.state.pool.blocks_for(request.target)
