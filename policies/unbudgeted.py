"""The engine before encoder budgets: whatever fits the KV cache is encoded at once."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_first_come, prefill_in_order


class Unbudgeted(Policy):
    """Encodes all pending items of all requests that the KV cache has room for at once, without any budget.

    Decodes wait while a large batch is encoded, and too large a batch runs out of memory.
    """

    kind: Literal["unbudgeted"] = "unbudgeted"
    source: ClassVar[str] = "TensorRT-LLM before PR #16051"
    budgeted: ClassVar[bool] = False

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        requests = fitting(builder)
        encode_first_come(builder, requests, reserve=False)
        builder.decode()
        prefill_in_order(builder, requests)
