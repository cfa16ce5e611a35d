"""Who waits for what in one engine of several, and for what of which other engine."""

from __future__ import annotations

from policies.encode_only import EncodeBuilder, EncodeState
from policies.handover import DecodeState, ItemsArrive
from policies.request_state import RequestState
from sim.clock import now
from sim.pool_engine import PoolEngine, coming
from sim.stalled import blockers, holders


def pool_blockers(engine: PoolEngine) -> dict[RequestState, str]:
    """For every request that is there or asks to come, in one line with the engine's name."""
    state = engine.state
    builder = EncodeBuilder if isinstance(state, EncodeState) else None
    named = blockers(state, engine.policy, now(engine.env), builder)
    reasons = {r: f"in {engine.name}: {reason}" for r, reason in named.items()}
    for request in coming(state):
        reasons[request] = f"is on its way to {engine.name}"
    for place, parcel in enumerate(parcel for parcel in engine.asking if not parcel.request.status):
        wanted = _wanted(engine, parcel.request) if not place else f"behind {engine.asking[0].request}"
        reasons[parcel.request] = f"waits in {parcel.source.name} for {engine.name}: {wanted}"
    return reasons


def _wanted(engine: PoolEngine, request: RequestState) -> str:
    state = engine.state
    if isinstance(state, DecodeState):
        needed = state.pool.blocks_for(request.max_tokens)
        seats = state.num_active + len(state.coming)
        left = state.pool.num_blocks - state.decodes.num_blocks - state.coming_blocks
        return f"{needed} KV blocks, {left} not reserved; {seats} of {state.max_num_seqs} seats taken"
    assert isinstance(state, ItemsArrive)
    rows = state.rows_for(request)
    held = f"of {state.encoder_cache_rows}, {state.cache.held_rows} held by {holders(state, request)}"
    return f"{rows} encoder-cache rows, {held}"
