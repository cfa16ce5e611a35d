"""Head of line, but active requests that the KV cache has no room for yet encode all the same."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_first_come, prefill_in_order


class Eager(Policy):
    """As head_of_line, but requests that the KV cache has no room for yet are encoded all the same.

    What they hold is missing to those that could start, so first tokens may come later.
    """

    kind: Literal["eager"] = "eager"
    source: ClassVar[str] = "TensorRT-LLM PR #16051, enable_eager_encoder_scheduling"

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        encode_first_come(builder, builder.contexts, reserve=True)
        requests = fitting(builder)
        builder.decode()
        prefill_in_order(builder, requests)
