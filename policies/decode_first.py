"""Decodes first, then as much prefill as a budget of tokens leaves, so that no prompt holds up the running answers."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.limits import Count
from policies.policy import Policy
from policies.request_state import RequestState
from policies.sentences import encode_whole


class DecodeFirst(Policy):
    """Fills iterations up to `chunk_size` tokens: every decode first, then chunks of prompts in order of arrival.

    The other policies also decode in every iteration; what differs is this budget, smaller than
    `max_num_batched_tokens`, which bounds how long a prompt may stretch an iteration. The encoder's budgets bound its
    own part, and its cache is charged as under `footprint`, so nothing stalls. With more decodes than `chunk_size`
    prompts wait.
    """

    kind: Literal["decode_first"] = "decode_first"
    source: ClassVar[str] = "Sarathi-Serve, arXiv 2403.02310; vLLM PR #7874; FastDeploy's chunked prefill"

    chunk_size: Count = 512  # tokens of an iteration, decodes included, that chunks may fill up

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        requests = fitting(builder)
        encode_whole(builder, requests)
        before = builder.tokens_left
        builder.decode()
        budget = self.chunk_size - (before - builder.tokens_left)
        for request in requests:
            if builder.ready(request):
                chunk = self._chunk(builder, request, budget)
                if not builder.prefill(request, chunk):
                    return
                budget -= chunk

    def _chunk(self, builder: PlanBuilder, request: RequestState, budget: int) -> int:
        """As much as both budgets have left; a prompt that may not be cut goes whole, past `chunk_size` only alone."""
        if builder.state.limits.chunked_prefill:
            return max(0, min(request.remaining, budget, builder.tokens_left))
        return request.remaining if request.remaining <= budget or not builder.plan.prefill else 0
