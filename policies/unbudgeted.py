"""The engine before encoder budgets: whoever prefills has all of its images encoded first, in one go."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_in_prompt_order, next_chunk


class Unbudgeted(Policy):
    """Encodes all items of every request that KV and token budget admit to an iteration at once, without any budget.

    Decodes wait while a large batch is encoded, and too large a batch runs out of memory.
    """

    kind: Literal["unbudgeted"] = "unbudgeted"
    source: ClassVar[str] = "TensorRT-LLM before PR #16051"
    budgeted: ClassVar[bool] = False

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        requests = fitting(builder)
        builder.decode()
        for request in requests:
            chunk = next_chunk(builder, request)
            if not chunk:
                return
            encode_in_prompt_order(builder, request)
            builder.prefill(request, chunk)
