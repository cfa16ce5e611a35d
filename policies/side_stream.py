"""The encoder beside the language model: outputs of a batch are in flight over several iterations, then they land."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from policies.completed import Completed
from policies.encoder_cache import EncoderEntry
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import QueueKey, ServingState


class SideStreamState(ServingState):
    """What an iteration encodes is charged at once and ready later, as with TensorRT-LLM's side stream (PR #14322).

    The stream holds what it is writing, so that rows of requests that leave meanwhile go to nobody else before it is
    done. While `encoder_side_stream_max_ahead` batches are in flight, no item can be encoded.
    """

    overlaps = lands_later = True
    landing = 0  # how many batches are done by the end of the iteration under way; set by whoever tells the time

    def __init__(self, limits: Limits, queue_key: QueueKey | None = None) -> None:
        super().__init__(limits, queue_key)
        self.flights: deque[list[EncoderEntry]] = deque()  # one batch an iteration, oldest first
        self._max_num_items = self.encoder_max_num_items

    def only_decodes(self) -> bool:
        """While something is in flight there is something to look out for."""
        return not self.flights and super().only_decodes()

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        completed = super().complete(plan, num_iterations, failed)
        self.land(self.landing)
        self.landing = 0
        return completed

    def _encoded(self, plan: IterationPlan, failed: Sequence[RequestState]) -> None:
        """Launched; a batch that fails does so at its launch."""
        if failed:
            super()._encoded(plan, failed)
            return
        flight = [request.holds[index] for request, index in plan.encode]
        for entry in flight:
            self.cache.hold(entry)
        self.flights.append(flight)
        self._close_or_open()

    def land(self, count: int) -> None:
        """The oldest batches are done: their outputs are ready, and the stream lets go of them."""
        for _ in range(count):
            for entry in self.flights.popleft():
                entry.ready = True
                self.cache.release(entry)
        self._close_or_open()

    def _close_or_open(self) -> None:
        full = len(self.flights) >= self.limits.encoder_side_stream_max_ahead
        self.encoder_max_num_items = 0 if full else self._max_num_items
