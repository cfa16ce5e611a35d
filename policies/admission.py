"""From the waiting queue to the active requests: first come, first served, through the encoder's admission gate."""

from policies.builder import PlanBuilder
from policies.request_state import RequestState


class AdmissionGate:
    """A separate simulation of the encoder's budgets, as in TensorRT-LLM PR #16051: it decides who may become active.

    What active requests still have to encode is charged first. Then a request passes if it can start: it needs no
    encoder, or its first missing item fits what remains.
    """

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.items_left = builder.state.encoder_max_num_items
        self.tokens_left = builder.state.encoder_max_num_tokens
        for request in builder.contexts:
            self._charge(request, builder.missing(request))

    def admits(self, request: RequestState) -> bool:
        if not self.would_admit(request):
            return False
        self._charge(request, self._to_encode(request))
        return True

    def would_admit(self, request: RequestState) -> bool:
        missing = self._to_encode(request)
        return not missing or self._fits(request, missing[0])

    def _to_encode(self, request: RequestState) -> list[int]:
        cache, keys = self.builder.state.cache, request.keys
        ahead = range(request.next_item, len(keys))
        return [i for i in ahead if (entry := cache.get(keys[i])) is None or entry.pending]

    def _fits(self, request: RequestState, index: int) -> bool:
        return self.items_left > 0 and self._cost(request, index) <= self.tokens_left

    def _cost(self, request: RequestState, index: int) -> int:
        """An item above the budget, where its policy has such, is encoded alone and takes all of it."""
        state = self.builder.state
        return min(state.limits.encoder_cost(request.items[index]), state.encoder_max_num_tokens)

    def _charge(self, request: RequestState, missing: list[int]) -> None:
        for index in missing:
            if not self._fits(request, index):
                return
            self.items_left -= 1
            self.tokens_left -= self._cost(request, index)


def admit_in_order(builder: PlanBuilder) -> None:
    """Admit from the head of the queue until the seats are taken or the head cannot start; nobody overtakes it."""
    if not builder.waiting or not builder.has_seats:
        return
    gated, gate = builder.state.limits.admission_gate, None
    for request in builder.waiting:
        if gated and request.items:  # others need no encoder, and whoever stands here passed the gate or needed none
            gate = gate or AdmissionGate(builder)
            if not gate.admits(request):
                return
        if not builder.admit(request):
            return
