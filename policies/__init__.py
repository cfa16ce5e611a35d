"""Who runs next: limits, plans, memory and the scheduling policies, without any knowledge of clocks or devices."""

from typing import Annotated

from pydantic import Field

from policies.eager import Eager
from policies.fcfs import Fcfs
from policies.footprint import Footprint
from policies.head_of_line import HeadOfLine
from policies.unbudgeted import Unbudgeted
from policies.vllm import Vllm
from policies.vllm_priority import VllmPriority

AnyPolicy = Annotated[
    Unbudgeted | Fcfs | HeadOfLine | Eager | Footprint | Vllm | VllmPriority, Field(discriminator="kind")
]
POLICIES = (Unbudgeted, Fcfs, HeadOfLine, Eager, Footprint, Vllm, VllmPriority)

__all__ = ["POLICIES", "AnyPolicy", "Eager", "Fcfs", "Footprint", "HeadOfLine", "Unbudgeted", "Vllm", "VllmPriority"]
