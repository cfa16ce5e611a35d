"""TensorRT-LLM after the merge of PR #16051: a request that starts to encode holds the rows of all its items."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.policy import Policy
from policies.proposals import can_start, propose
from policies.request_state import RequestState
from policies.sentences import encode_in_prompt_order


class TrtMain(Policy):
    """Takes the rows of all of a request's items when it starts, encodes them within the budgets, then prefills.

    An item that two requests name is encoded once. Nobody waits for rows while holding some, so it never stalls, but
    nothing is kept for whom the cache has no room yet: a request with many rows starves behind others with few.
    """

    kind: Literal["trt_main"] = "trt_main"
    source: ClassVar[str] = "TensorRT-LLM main, MultimodalScheduler and TensorLRUCache, on KV cache manager V2"
    apart: ClassVar[bool] = False
    chunk_unit_size: Annotated[int, Field(ge=1)] = 1  # tokens; chunks but the last of a prompt are multiples of it
    encoder_scheduling_policy: Literal["DEFAULT", "EAGER"] = "DEFAULT"  # EAGER: requests without KV blocks encode too

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        requests = can_start(builder)
        builder.decode()
        if self.encoder_scheduling_policy == "EAGER":
            self._encode(builder, builder.contexts)
        chunks = propose(builder, self._in_order(builder, requests), self.chunk_unit_size)
        started = self._encode(builder, [r for r in builder.contexts if r in chunks])
        for request, chunk in chunks.items():
            if chunk and builder.ready(request):
                builder.prefill(request, chunk)
            elif request in started:
                builder.keep_blocks(request, chunk)

    def _in_order(self, builder: PlanBuilder, requests: list[RequestState]) -> list[RequestState]:
        """As they came; but whoever waits for rows lets those pass who hold theirs, and nobody else."""
        waiting = [n for n, r in enumerate(requests) if r.num_items_ahead and not r.holds and not builder.has_room(r)]
        ahead, behind = (requests[: waiting[0]], requests[waiting[0] :]) if waiting else (requests, [])
        return [*ahead, *(r for r in behind if r.holds), *(r for r in behind if not r.holds)]

    def _encode(self, builder: PlanBuilder, requests: list[RequestState]) -> list[RequestState]:
        """Whole footprints in order, whoever has no room passed over, and of these as many items as the budgets let."""
        started = [request for request in requests if builder.charge(request)]
        for request in started:
            encode_in_prompt_order(builder, request)
        return started
