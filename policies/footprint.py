"""The safe one: a request starts to encode only when the cache can take everything that it needs."""

from typing import ClassVar, Literal

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.capacity import fitting
from policies.policy import Policy
from policies.sentences import encode_whole, prefill_in_order


class Footprint(Policy):
    """Starts to encode a request only when the cache has rows for all its items, and takes them all at once.

    Nobody waits for rows while holding some, so it never stalls; rows taken early may lie idle. The first request that
    cannot be charged keeps the rows it needs from those behind it, so that none starves.
    """

    kind: Literal["footprint"] = "footprint"
    source: ClassVar[str] = "whole-footprint charging, after TensorRT-LLM main's claim on a request's start"

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        requests = fitting(builder)
        encode_whole(builder, requests)
        builder.decode()
        prefill_in_order(builder, requests)
