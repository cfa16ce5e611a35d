"""Which encoder outputs came about in a run and when the scheduler forgot them, to replay its memory by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple
from weakref import ref

from policies.encoder_cache import EncoderEntry
from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.backend import AccountingBackend, Around, Outcome


class EncoderCall(NamedTuple):
    """One call of the encoder."""

    encoder_tokens: int  # pre-merger, of all its items
    outputs: tuple[tuple[int, int], ...]  # number and rows of each that came of it


class Forgotten(NamedTuple):
    """An output that was evicted, or released and not kept."""

    output: int


Event = EncoderCall | Forgotten


class MemoryLog(Around[AccountingBackend]):
    """A backend as it is, with a list of what became of encoder outputs, in order.

    An output is gone when its entry is, as with the executor's one tensor an item; entries die by reference count.
    """

    def __init__(self, backend: AccountingBackend) -> None:
        super().__init__(backend)
        self.events: list[Event] = []
        self._numbers = count()
        self._alive: dict[ref[EncoderEntry], int] = {}

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> tuple[IterationPlan, Any]:
        return plan, self.backend.launch(plan, max_iterations, horizon)

    def wait(self, handle: tuple[IterationPlan, Any]) -> Outcome:
        plan, inner = handle
        outcome = self.backend.wait(inner)
        if plan.encode:
            self.events += self._calls(plan, outcome.failed)
        return outcome

    def _calls(self, plan: IterationPlan, failed: Sequence[RequestState]) -> Iterator[EncoderCall]:
        """Those that yielded anything."""
        for call in plan.encoder_calls():
            done = [(request, index) for request, index in call if request not in failed]
            tokens = sum(request.items[index].encoder_tokens for request, index in done)
            if done:
                yield EncoderCall(tokens, tuple(self._output(request.holds[index]) for request, index in done))

    def _output(self, entry: EncoderEntry) -> tuple[int, int]:
        number = next(self._numbers)
        self._alive[ref(entry, self._forgotten)] = number
        return number, entry.num_rows

    def _forgotten(self, entry: ref[EncoderEntry]) -> None:
        self.events.append(Forgotten(self._alive.pop(entry)))


def most_rows(events: Sequence[Event]) -> int:
    """Rows that the outputs alive at one time had at most."""
    alive: dict[int, int] = {}
    rows = most = 0
    for event in events:
        if isinstance(event, EncoderCall):
            alive |= dict(event.outputs)
            rows += sum(count for _, count in event.outputs)
            most = max(most, rows)
        else:
            rows -= alive.pop(event.output)
    return most
