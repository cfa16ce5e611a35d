"""Running requests one after the other: single decodes, and who is left out."""

from __future__ import annotations

from policies.request_state import RequestState
from policies.undo import Undo


class Turns(Undo):
    """The verbs of policies that walk all running requests in one order, as vLLM does."""

    _held_back: dict[RequestState, None] | None = None

    # Questions

    def decodes_now(self, request: RequestState) -> bool:
        """Whether the draft has it among the decodes that run."""
        return self.plan.decode is not None and self._stays(request) and not self._is_held_back(request)

    def _is_held_back(self, request: RequestState) -> bool:
        return bool(self._held_back) and request in self.plan.held_back

    def _stays(self, request: RequestState) -> bool:
        return request in self.state.decodes.members and request not in self.plan.preempted

    # Verbs

    def decode_one(self, request: RequestState) -> bool:
        """Run one of the decodes; the others are held back, but for those that it is said of too."""
        if self.decodes_now(request) or not self._stays(request):
            return False
        blocks = int(self.state.decodes.crosses(request))
        if self.tokens_left < 1 or blocks > self.free_blocks:
            return False
        if self.plan.decode is None:
            self._hold_back_all()
        if self._held_back:
            del self._held_back[request]
        self.tokens_left -= 1
        self.free_blocks -= blocks
        return True

    def _hold_back_all(self) -> None:
        self.plan.decode, preempted = self.state.decodes, self.plan.preempted
        self._held_back = {r: None for r in self.state.decodes.members if r not in preempted}
        self.plan.set_back().held_back = self._held_back

    def hold_back(self, request: RequestState) -> bool:
        """Leave a decode out of this iteration: it becomes a context again, one token away from its target."""
        if not self._stays(request) or self._is_held_back(request):
            return False
        self._stop(request)
        self._held_back = self.plan.set_back().held_back = {**(self._held_back or {}), request: None}
        self._none_runs()
        return True

    def _none_runs(self) -> None:
        """A plan decodes only where some decode runs."""
        if self.plan.decode is not None and not any(map(self.decodes_now, self.state.decodes.members)):
            self.plan.decode = None

    def _stop(self, request: RequestState) -> None:
        """A decode, so far planned to run or not, takes nothing of this iteration."""
        if self.decodes_now(request):
            self.tokens_left += 1
            self.free_blocks += self.state.decodes.crosses(request)
        if self._held_back:
            self._held_back.pop(request, None)

    def _send_back(self, request: RequestState) -> None:
        """All that a request has or was to get is free again: it stands in the queue as if it had just come."""
        keys = [request.keys[index] for index in request.held | {*self._found(request)}]
        self.unschedule(request)
        self._drop_holds(request)
        self._refresh(keys)
        self.plan.blocked.pop(request, None)
        self.plan.set_back().requeued = [*self.plan.requeued, request]
