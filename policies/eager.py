"""Head of line, but active requests that the KV cache has no room for yet encode all the same."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_first_come, prefill_in_order


class Eager(Policy):
    """Items are selected before the LLM's capacity has its say; only prefill waits for KV blocks."""

    kind: Literal["eager"] = "eager"
    source: ClassVar[str] = "TensorRT-LLM PR #16051, enable_eager_encoder_scheduling"

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        encode_first_come(builder, builder.contexts, reserve=True)
        requests = fitting(builder)
        builder.decode()
        prefill_in_order(builder, requests)
