"""First come, first served, but a request that cannot start is skipped, so often and so long as a bound allows."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.budgets import UNBOUNDED
from policies.builder import PlanBuilder
from policies.policy import Policy
from policies.request_state import RequestState
from policies.sentences import encode_first_come, prefill_in_order
from policies.starting import Starting

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class BoundedBypass(Policy):
    """Starts requests in order and skips those for which KV blocks, encoder rows or the gate leave no room yet.

    Once `max_bypasses` later ones have passed a request, or it is older than `max_wait`, nobody passes it any more: the
    server empties until it can start, so none starves. Requests start with all they need, so it never stalls.
    """

    kind: Literal["bounded_bypass"] = "bounded_bypass"
    source: ClassVar[str] = "vLLM PRs #33499 (bound of 8 bypasses) and #35852: skip what is blocked"

    max_bypasses: Annotated[int, Field(ge=0, le=2**40)] = 8  # later requests that may start before a blocked one
    max_wait: Seconds | None = None  # seconds after its arrival in which others may pass a request; left out: forever

    def schedule(self, builder: PlanBuilder) -> None:
        starting = Starting(builder)
        self._start(builder, starting)
        encode_first_come(builder, starting.requests, reserve=False)
        builder.decode()
        prefill_in_order(builder, starting.requests)

    def _start(self, builder: PlanBuilder, starting: Starting) -> None:
        bypasses = UNBOUNDED  # that those skipped so far still allow; time only lowers it, so a plan without stays so
        for request in builder.waiting:
            if not starting.open or bypasses <= 0:
                return
            if starting.start(request):
                bypasses -= 1
            else:
                bypasses = min(bypasses, self._allowed(request, builder.now))

    def _allowed(self, request: RequestState, now: int) -> int:
        if self.max_wait is not None and now - request.arrival >= round(self.max_wait * 1e9):
            return 0
        return self.max_bypasses - request.num_overtaken
