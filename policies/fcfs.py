"""First come, first served packing of items under the encoder's budgets, without any reservation."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_first_come, prefill_in_order


class Fcfs(Policy):
    """Encodes items in order of arrival within the encoder's budgets; later ones fill the gaps that earlier ones leave.

    It stalls when partly encoded requests fill the encoder cache.
    """

    kind: Literal["fcfs"] = "fcfs"
    source: ClassVar[str] = "TensorRT-LLM PR #16051, item scheduling without the reservation"

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        builder.attach_hits(builder.contexts)
        requests = fitting(builder)
        encode_first_come(builder, requests, reserve=False)
        builder.decode()
        prefill_in_order(builder, requests)
