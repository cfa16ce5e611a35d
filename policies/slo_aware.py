"""Earliest deadline first, where the deadline is that of the first token."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.limits import Count
from policies.policy import FOREVER, Policy
from policies.request_state import RequestState
from policies.starting import serve_by

Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class SloAware(Policy):
    """Starts, encodes and prefills by deadline: arrival, and the TTFT target of short prompts or of long ones.

    Deadlines order, they do not bind: nobody is rejected, and running answers go on. Who is late keeps its place, so
    nobody starves; with `late: last` it goes behind all that can still make it, and in overload may starve. Requests
    start with all they need, so it never stalls.
    """

    kind: Literal["slo_aware"] = "slo_aware"
    source: ClassVar[str] = "vLLM PR #53571: TTFT targets of short and long prompts order the queue, none is dropped"

    short_ttft: Seconds = 1.0  # target of prompts up to the threshold, in seconds
    long_ttft: Seconds = 4.0  # target of longer prompts, in seconds
    short_request_token_threshold: Count = 2048  # tokens of a short prompt at most, placeholders of items included
    late: Literal["first", "last"] = "first"  # whether those past their deadline keep their place or go behind the rest

    def schedule(self, builder: PlanBuilder) -> None:
        serve_by(builder, lambda r: self._urgency(r, builder.now))

    def stable_until(self, builder: PlanBuilder) -> int:
        """The order changes when somebody becomes late, if that matters."""
        if self.late == "first":
            return FOREVER
        deadlines = (self._deadline(request) for request in (*builder.contexts, *builder.waiting))
        return min((deadline + 1 for deadline in deadlines if deadline >= builder.now), default=FOREVER)

    def _urgency(self, request: RequestState, now: int) -> tuple[bool, int, int]:
        """A request that was preempted after its first token is late no more."""
        deadline = self._deadline(request)
        behind = self.late == "last" and deadline < now and not request.num_generated
        return behind, deadline, request.id

    def _deadline(self, request: RequestState) -> int:
        short = request.request.prompt_tokens <= self.short_request_token_threshold
        return request.arrival + round((self.short_ttft if short else self.long_ttft) * 1e9)
