"""An engine that does nothing but encode: the same policies, of whose plans only the items concern it."""

from __future__ import annotations

from collections.abc import Sequence

from policies.budgets import UNBOUNDED
from policies.builder import PlanBuilder
from policies.completed import Completed
from policies.encoder_cache import EncoderEntry
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import ServingState


class EncodePlan(IterationPlan):
    """In the place of prefill: who has all its items after this iteration and goes on to another engine."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[RequestState] = []

    def is_empty(self) -> bool:
        return not (self.encode or self.handed)

    @property
    def decodes_only(self) -> bool:
        return False


class EncodeBuilder(PlanBuilder):
    """KV blocks and tokens are somebody else's: to prefill a request here is to hand it over, once it is encoded."""

    plan: EncodePlan

    def __init__(self, state: ServingState, now: int) -> None:
        super().__init__(state, now)
        self.plan = EncodePlan()
        self.tokens_left = self.free_blocks = UNBOUNDED

    def prefill(self, request: RequestState, num_tokens: int) -> bool:
        if request in self.plan.handed or not self.ready(request):
            return False
        self.plan.handed.append(request)
        return True


class EncodeState(ServingState):
    """Requests leave with their answer not begun; their rows stay until somebody has them."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.leaving: list[RequestState] = []  # done here, with nobody told yet
        self.away: dict[RequestState, dict[int, EncoderEntry]] = {}  # rows of those that have left, not yet there

    def submit(self, request: RequestState) -> None:
        super().submit(request)
        request.max_blocks = 0

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        assert isinstance(plan, EncodePlan)
        completed = super().complete(plan, num_iterations, failed)
        handed = [request for request in plan.handed if request in self.contexts]
        for request in handed:
            del self.contexts[request]
            self.away[request] = request.holds
            request.holds, request.held = {}, set()
        self.leaving += handed
        return Completed([], [], completed.failed)

    def let_go(self, request: RequestState) -> None:
        """Its rows are where they were wanted, or nobody wants them any more."""
        for entry in self.away.pop(request).values():
            self.cache.release(entry)
