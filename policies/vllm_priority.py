"""vLLM's scheduler by priority: the requests' own priorities decide who starts, and who is preempted."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import ClassVar, Literal

from policies.builder import PlanBuilder
from policies.request_state import RequestState
from policies.vllm_rules import VllmRules


class VllmPriority(VllmRules):
    """As vllm, but the queue is in order of the requests' `priority` (lower first), then of arrival.

    When KV blocks run out the last in that order is preempted, and gives back what it was to get in this iteration.
    """

    kind: Literal["vllm_priority"] = "vllm_priority"
    source: ClassVar[str] = "vLLM 0.32, V1 scheduler, policy priority"

    def _victim(self, running: list[RequestState]) -> RequestState:
        return max(running, key=lambda request: (request.request.priority, request.arrival))

    def _queue(self, builder: PlanBuilder) -> Iterable[RequestState]:
        return _smallest_first([(r.request.priority, r.arrival, r.id, r) for r in builder.waiting])


def _smallest_first(queue: list[tuple[int, int, int, RequestState]]) -> Iterator[RequestState]:
    """Sorted as far as it is asked for."""
    heapify(queue)
    while queue:
        yield heappop(queue)[-1]
