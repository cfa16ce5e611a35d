"""Admission as the start: a request leaves the queue together with all the KV blocks and encoder rows that it needs."""

from collections.abc import Callable
from typing import Any

from policies.admission import AdmissionGate
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.request_state import RequestState
from policies.sentences import encode_first_come, prefill_in_order


def serve_by(builder: PlanBuilder, urgency: Callable[[RequestState], Any]) -> None:
    """Start, encode and prefill, the least by `urgency` first; nobody starts before one that cannot."""
    starting = Starting(builder)
    for request in sorted(builder.waiting, key=urgency) if starting.open else ():
        if not starting.start(request):
            break
    requests = sorted(starting.requests, key=urgency)
    encode_first_come(builder, requests, reserve=False)
    builder.decode()
    prefill_in_order(builder, requests)


class Starting:
    """Whoever can go on in this iteration, and the starts of others.

    A started request has its KV blocks (under `no_evict` to completion, else for what it prefills) and its whole
    footprint of rows, as under `footprint`: nobody active waits for what another one holds, in whatever order they are
    served, so nothing can stall.
    """

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.requests = self._charged(fitting(builder))  # active and with all that they need, newly started ones too
        self._blocks_left = builder.unclaimed_blocks
        self._gate: AdmissionGate | None = None
        self._resuming = bool(builder.plan.preempted) or len(self.requests) < len(builder.contexts)

    @property
    def open(self) -> bool:
        """Whether anybody may start: there is a seat, and nobody who was preempted waits to get back what it had."""
        return not self._resuming and self.builder.has_seats

    def start(self, request: RequestState) -> bool:
        """Admit a waiting request with its blocks and rows, and through the gate where there is one; or do nothing."""
        builder, gate = self.builder, self._gate_for(request)
        blocks = builder.blocks_to_start(request)
        if not self.open or blocks > self._blocks_left or (gate and not gate.would_admit(request)):
            return False
        if not builder.charge(request):
            return False
        builder.admit(request)
        if gate:
            gate.admits(request)
        self._blocks_left -= blocks
        self.requests.append(request)
        return True

    def _charged(self, requests: list[RequestState]) -> list[RequestState]:
        """Those with their footprint. One that lost it takes it anew, and the first that cannot has its rows kept."""
        charged = []
        for request in requests:
            if self.builder.charge(request):
                charged.append(request)
            else:
                self.builder.reserve(request)
        return charged

    def _gate_for(self, request: RequestState) -> AdmissionGate | None:
        if not (self.builder.state.limits.admission_gate and request.items):
            return None
        self._gate = self._gate or AdmissionGate(self.builder)
        return self._gate
