"""FCFS packing in which the first incomplete request reserves the encoder-cache rows that it still needs."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_first_come, prefill_in_order


class HeadOfLine(Policy):
    """As fcfs, and the first request that is not fully encoded reserves the cache rows that it still needs.

    It can stall: a younger request may already hold the rows that the next head needs.
    """

    kind: Literal["head_of_line"] = "head_of_line"
    source: ClassVar[str] = "TensorRT-LLM PR #16051"

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        requests = fitting(builder)
        encode_first_come(builder, requests, reserve=True)
        builder.decode()
        prefill_in_order(builder, requests)
