"""vLLM's scheduler as it comes: first come, first served, items as the chunks need them."""

from typing import ClassVar, Literal

from policies.request_state import RequestState
from policies.vllm_rules import VllmRules


class Vllm(VllmRules):
    """Every request gets tokens in order of admission, up to its first item that cannot be encoded or cached.

    Items are encoded as chunks reach them, under one budget of embeds, and their outputs dropped as they are read. The
    queue waits behind a head that cannot start; the last to come is preempted when KV blocks run out. It never stalls.
    """

    kind: Literal["vllm"] = "vllm"
    source: ClassVar[str] = "vLLM 0.32, V1 scheduler, policy fcfs"

    def _victim(self, running: list[RequestState]) -> RequestState:
        return running[-1]
