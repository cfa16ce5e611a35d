"""The encoder on a stream of its own, beside the language model: who of the two runs, how fast, and until when."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import simpy

from policies.encoder_cache import EncoderEntry
from policies.plan import IterationPlan
from policies.serving import ServingState
from policies.side_stream import SideStreamState
from sim.backend import Outcome
from sim.clock import now
from sim.engine import Engine
from sim.recorder import Recorder
from sim.served import ServedRequest, served

Landings = list[int]  # how long from now until each of the oldest batches is done


class SideStream:
    """Batches one after the other. Work is what they take alone, in ns; beside the language model both are slowed."""

    def __init__(self, interference: float) -> None:
        self.interference = interference
        self.spans: list[tuple[int, int]] = []  # when each batch ran, from its turn on
        self._left: deque[int] = deque()  # work of each batch in flight, oldest first
        self._begun = 0  # when the oldest one's turn came

    @property
    def busy(self) -> bool:
        return bool(self._left)

    @property
    def next_landing(self) -> int:
        """While nothing runs beside it."""
        return self._left[0]

    def beside(self, start: int, host: int, compute: int, launched: int | None) -> tuple[int, Landings]:
        """An iteration of the language model: what `compute` takes, and which batches are done by its end.

        The host's time comes first and slows nobody; then the iteration's own batch of items, if any, is launched.
        """
        landings = self._run(host)
        self._landed(start, landings)
        if launched is not None:
            if not self._left:
                self._begun = start + host
            self._left.append(launched)
        shared = min(sum(self._left), compute)
        later = [host + round(work * self.interference) for work in self._run(shared)]
        self._landed(start, later)
        return round(shared * self.interference) + compute - shared, landings + later

    def alone(self, start: int, elapsed: int) -> Landings:
        """Nothing runs beside it."""
        landings = self._run(elapsed)
        self._landed(start, landings)
        return landings

    def _run(self, work: int) -> Landings:
        """Do so much of it; how much of that was done when each batch was complete."""
        left, done, landings = self._left, 0, []
        while left and done + left[0] <= work:
            done += left.popleft()
            landings.append(done)
        if left:
            left[0] -= work - done
        return landings

    def _landed(self, start: int, landings: Landings) -> None:
        for landing in landings:
            self.spans.append((self._begun, start + landing))
            self._begun = start + landing


class SideStreamRecorder(Recorder):
    """Knows whose items were in flight for how long of each iteration: `beside`, in ns, told by the engine.

    The first label that fits is the same as ever: the encoding of an own item, then prefill, then what it waits for.
    """

    beside: dict[ServedRequest, int] = {}  # noqa: RUF012  # replaced, never changed

    def iterated(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        self.iterations.add(plan, outcome, state, start)
        self._label_in_flight()
        labelled = dict(self.beside)
        for owner, _ in plan.prefill:
            request: ServedRequest = owner  # type: ignore[assignment]  # see `served`
            if request.first_token < 0:
                own = labelled.get(request, 0)
                request.prefill += (prefill := min(outcome.compute, outcome.total - own))
                labelled[request] = own + prefill
        self._label_rest(plan, outcome.total, labelled)

    def waited(self, plan: IterationPlan, elapsed: int) -> None:
        self._label_in_flight()
        self._label_rest(plan, elapsed, self.beside)

    def _label_in_flight(self) -> None:
        for request, elapsed in self.beside.items():
            if request.first_token < 0:
                request.encode += elapsed

    def _label_rest(self, plan: IterationPlan, total: int, labelled: dict[ServedRequest, int]) -> None:
        for request in served(plan.blocked):
            if request.first_token < 0 <= request.admitted:
                self._add_wait(plan, request, total - labelled.get(request, 0))


class SideStreamEngine(Engine):
    """Launches an iteration's items on a stream of their own; policies and backends are as ever.

    An iteration's `encode` then is what sharing the device with the encoder added to its compute.
    """

    state: SideStreamState
    recorder: SideStreamRecorder
    stream: SideStream

    def _unchanged_until(self, upcoming: float) -> int:
        """One iteration at a time while the stream is busy: each is slowed in its own way."""
        return 0 if self.stream.busy else super()._unchanged_until(upcoming)

    def _launch(self, plan: IterationPlan, start: int, upcoming: float) -> Outcome:
        outcome = super()._launch(plan, start, upcoming)
        self.recorder.beside = {}
        launches = bool(plan.encode) and not outcome.failed
        if not launches and not self.stream.busy:
            return outcome
        flights = [*self.state.flights]
        if launches:
            flights.append([request.holds[index] for request, index in plan.encode])
        host, compute = outcome.host, outcome.compute
        elapsed, landings = self.stream.beside(start, host, compute, outcome.encode if launches else None)
        total = host + elapsed
        self.state.landing = len(landings)
        self.recorder.beside = self._beside(flights, landings, total)
        return Outcome(host, elapsed - compute, compute, total, None, outcome.failed, outcome.reason)

    def _rest(self, plan: IterationPlan, start: int) -> Generator[simpy.Event, None, int]:
        """Until something happens, or a batch is done."""
        rest = super()._rest(plan, start)
        idle = next(rest)
        if self.stream.busy:
            timer = self.env.timeout(start + self.stream.next_landing - now(self.env))
            timer.callbacks.append(lambda _: self._wake() if self._idle is idle else None)
        yield idle
        elapsed = now(self.env) - start
        flights, landings = [*self.state.flights], self.stream.alone(start, elapsed)
        self.recorder.beside = self._beside(flights, landings, elapsed)
        self.state.land(len(landings))
        yield from rest
        return now(self.env)

    def _beside(self, flights: list[list[EncoderEntry]], landings: Landings, total: int) -> dict[ServedRequest, int]:
        """For how long from the start somebody's own items were in flight, as far as `total`."""
        until = {entry: total for flight in flights for entry in flight}
        for flight, landing in zip(flights, landings, strict=False):
            until |= dict.fromkeys(flight, landing)
        longest = {}
        for request in served(self.state.contexts):
            if request.holds and (own := [until[entry] for entry in request.holds.values() if entry in until]):
                longest[request] = max(own)
        return longest
