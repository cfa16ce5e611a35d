"""Several engines behind one front end: who serves a request next, and what is sent for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.feasible import why_never
from policies.handover import DecodeState, PrefillState
from policies.limits import MAX_BLOCKS, Limits
from policies.request_state import RequestState
from sim.clock import now
from sim.link import LinkAtWork
from sim.pool_engine import Parcel, PoolEngine
from sim.pool_stalled import pool_blockers
from sim.pools import KINDS, Kind
from sim.router import Router
from sim.served import ServedRequest
from workloads.models import VisionLanguageModel

ROOMY = {"num_kv_blocks": MAX_BLOCKS, "capacity": "no_evict"}  # as far as one engine's own KV is concerned


class Cluster:
    """What needs encoding goes to an encode engine first, if there is one; then prefill; then decode, if there is one.

    Encoder outputs are counted by the row, but those that the receiver has; KV by the sender's whole blocks.
    """

    def __init__(
        self,
        pools: Mapping[Kind, Sequence[PoolEngine]],
        link: LinkAtWork | None,
        model: VisionLanguageModel,
        *,
        router: str,
    ) -> None:
        self.pools = pools
        self.link = link
        self.model = model
        self.sent_rows_bytes = self.sent_kv_bytes = 0
        self.routers = {kind: Router(engines, router) for kind, engines in pools.items()}
        for engine in self.engines:
            engine.hand_over, engine.dispatch = self._hand_over, self._dispatch

    @property
    def engines(self) -> list[PoolEngine]:
        """In the order in which requests pass them."""
        return [engine for kind in KINDS for engine in self.pools.get(kind, ())]

    def deliver(self, request: ServedRequest) -> None:
        """A prepared request; one that some pool can never serve is rejected here, alone."""
        first: Kind = "encode" if request.items and "encode" in self.pools else "prefill"
        engine = self.routers[first].pick()
        request.prepared = now(engine.env)
        request.engine = engine
        for kind, engines in self.pools.items():
            if reason := self._why_never(kind, engines[0], request):
                engine.recorder.leave(request, request.prepared, "rejected", reason)
                return
        engine.enter(request)

    def _why_never(self, kind: Kind, engine: PoolEngine, request: ServedRequest) -> str:
        limits = engine.state.limits
        if kind == "encode":
            return why_never(limits.model_copy(update=ROOMY | {"chunked_prefill": True}), request)
        if kind == "decode":
            return _why_never_kv(limits, request.max_tokens, "decode")
        if "decode" not in self.pools:
            return why_never(limits, request)
        return _why_never_kv(limits, request.target, "prefill") or why_never(limits.model_copy(update=ROOMY), request)

    def cancel(self, request: ServedRequest, reason: str) -> None:
        """Wherever it is. What is being sent for it is sent to the end, for nobody."""
        if request.status:
            return
        if request.prepared < 0:
            self.engines[0].recorder.leave(request, now(self.engines[0].env), "cancelled", reason)
        elif request.parcel is None:
            request.engine.cancel(request, reason)
        else:
            source, target = request.parcel.source, request.parcel.target
            source.recorder.leave(request, now(source.env), "cancelled", reason)
            target.look_again()

    def _hand_over(self, source: PoolEngine, request: ServedRequest, handed: int) -> None:
        """To the next pool, once there is room."""
        target = self.routers["prefill" if request.first_token < 0 else "decode"].pick()
        request.parcel = Parcel(request, source, target, handed)
        request.engine = target
        target.ask(request.parcel)

    def _dispatch(self, parcel: Parcel) -> None:
        """Room is taken, and it is sent."""
        request, source, state = parcel.request, parcel.source.state, parcel.target.state
        if isinstance(state, DecodeState):
            assert isinstance(source, PrefillState)
            state.reserve(request)
            tokens = source.num_blocks_of(request) * source.pool.block_size
            num_bytes = tokens * self.model.kv_bytes_per_token
            self.sent_kv_bytes += num_bytes
        else:
            num_bytes = state.reserve(request) * self.model.embedding_row_bytes  # type: ignore[attr-defined]
            self.sent_rows_bytes += num_bytes
        assert self.link is not None
        self.link.send(num_bytes, lambda: parcel.target.land(parcel))

    def blockers(self) -> dict[RequestState, str]:
        """Whom a run that stalled leaves waiting for what, and where."""
        reasons: dict[RequestState, str] = {}
        for engine in self.engines:
            reasons |= pool_blockers(engine)
        return reasons

    def leave_unfinished(self, request: ServedRequest, status: str, reason: str) -> None:
        """Where it was."""
        engine = self.engines[0] if request.prepared < 0 else request.engine
        engine = request.parcel.source if request.parcel is not None else engine
        engine.recorder.leave_unfinished(request, status, reason)


def _why_never_kv(limits: Limits, tokens: int, kind: Kind) -> str:
    assert limits.num_kv_blocks is not None
    capacity = limits.num_kv_blocks * limits.block_size
    if tokens <= capacity:
        return ""
    return f"needs {tokens} KV tokens and a {kind} engine holds {capacity}: raise pools.{kind}.engine.num_kv_blocks"
