"""vLLM's scheduler by priority: the requests' own priorities decide who starts, and who is preempted."""

from typing import ClassVar, Literal

from policies.request_state import RequestState
from policies.serving import QueueKey
from policies.vllm_rules import VllmRules


class VllmPriority(VllmRules):
    """As vllm, but the queue is in order of the requests' `priority` (lower first), then of arrival.

    When KV blocks run out the last in that order is preempted, and gives back what it was to get in this iteration.
    What it was to encode is not in the cache then: vLLM counts it as cached, and fails when it is asked for.
    """

    kind: Literal["vllm_priority"] = "vllm_priority"
    source: ClassVar[str] = "vLLM 0.32, V1 scheduler, policy priority"

    @property
    def queue_key(self) -> QueueKey:
        return _rank

    def _victim(self, running: list[RequestState]) -> RequestState:
        return max(running, key=_rank)


def _rank(request: RequestState) -> tuple[int, int, int]:
    """No two are alike: vLLM's arrivals are stamped one after the other, ours may be at one time, in order of ids."""
    return request.request.priority, request.arrival, request.id
