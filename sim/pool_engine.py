"""One engine of several: requests come to it from others, or go on from it to others, over a link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from policies.completed import Completed
from policies.encode_only import EncodeBuilder
from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome
from sim.clock import now
from sim.engine import Engine
from sim.recorder import Recorder
from sim.served import ServedRequest, served


@dataclass(eq=False)
class Parcel:
    """A request on its way from one engine to another, with its encoder outputs or its KV."""

    request: ServedRequest
    source: PoolEngine
    target: PoolEngine
    handed: int  # when the source was done with it, in ns
    landed: int = -1


class PoolRecorder(Recorder):
    """Writes down what one engine does; who is under way is known to all of them together."""

    engine: PoolEngine

    def __init__(
        self, under_way: dict[ServedRequest, None], *, keep_iterations: bool, progress: Callable[[int], None] | None
    ) -> None:
        super().__init__(keep_iterations=keep_iterations, progress=progress)
        self.under_way = under_way

    def planned(self, plan: IterationPlan, now: int) -> None:
        """Only the first admission is one: later ones end one more wait in a queue."""
        before = [(request, request.admitted) for request in served(plan.admitted)]
        super().planned(plan, now)
        for request, admitted in before:
            if admitted >= 0:
                request.requeued += now - request.entered
                request.admitted = admitted

    def is_awaited(self, completed: Completed) -> bool:
        """Other engines too act at the time at which they hear of it."""
        return self.engine.concerns_others or super().is_awaited(completed)

    def completed(self, completed: Completed, outcome: Outcome, now: int) -> None:
        super().completed(completed, outcome, now)
        self.engine.pass_on(now)


class PoolEngine(Engine):
    """What it gets from others, and what of its own is there by now, takes effect at the next draft, as arrivals do."""

    env: Any  # with turns
    recorder: PoolRecorder

    def __init__(self, name: str, rank: int, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.name = name
        self.rank = rank
        self.recorder.engine = self
        self.hand_over: Callable[[PoolEngine, ServedRequest, int], None] = _nowhere
        self.dispatch: Callable[[Parcel], None] = _nowhere
        self.asking: deque[Parcel] = deque()  # whom there was no room for yet, first come first
        self._landed: list[Parcel] = []
        self._delivered: list[ServedRequest] = []  # others have what this engine kept for them

    @property
    def load(self) -> int:
        """Requests that are here or coming."""
        state = self.state
        return state.num_active + len(state.waiting) + len(self._arrived) + len(self.asking) + len(coming(state))

    @property
    def concerns_others(self) -> bool:
        return bool(self.asking or getattr(self.state, "leaving", ()))

    def enter(self, request: ServedRequest) -> None:
        """A request from outside."""
        request.path += (self.name,)
        self._arrived.append(request)
        self._wake()

    def ask(self, parcel: Parcel) -> None:
        """Somebody has a request for this engine."""
        self.asking.append(parcel)
        self._wake()

    def land(self, parcel: Parcel) -> None:
        """It is here, and the sender needs it no more."""
        parcel.landed = now(self.env)
        self._landed.append(parcel)
        self._wake()
        parcel.source.delivered(parcel)

    def delivered(self, parcel: Parcel) -> None:
        self._delivered.append(parcel.request)
        self._wake()

    def look_again(self) -> None:
        """Somebody who asked has left."""
        self._wake()

    def pass_on(self, start: int) -> None:
        """After an iteration: who is done here goes on, and there may be room for those that ask."""
        leaving = getattr(self.state, "leaving", [])
        for request in served(leaving):
            self.hand_over(self, request, start)
        leaving.clear()
        self._told |= bool(self.asking)

    def _serve(self) -> Generator[simpy.Event, None, None]:
        self.env.take_rank(self.rank)
        yield from super()._serve()

    def _take_in(self, start: int) -> None:
        for request in self._delivered:
            self.state.let_go(request)  # type: ignore[attr-defined]  # whoever sends has a state that lets go
        self._delivered.clear()
        for parcel in self._landed:
            self._receive(parcel)
        self._landed.clear()
        super()._take_in(start)
        self._accept()

    def _receive(self, parcel: Parcel) -> None:
        request, state = parcel.request, self.state
        state.receive(request)  # type: ignore[attr-defined]  # whoever is sent to has a state that receives
        if request.status:  # it was cancelled on the way
            state.abort(request)
            return
        request.order, request.entered = -1, parcel.landed
        request.parcel = None
        request.path += (self.name,)
        if request.first_token < 0:
            request.transfer += parcel.landed - parcel.handed
        else:
            request.given_step = self.recorder.iterations.decode_steps
        state.submit(request)

    def _accept(self) -> None:
        """First come first served; nobody overtakes one for whom there is no room yet."""
        while self.asking:
            parcel = self.asking[0]
            if not parcel.request.status:
                if not self.state.room_for(parcel.request):  # type: ignore[attr-defined]
                    return
                self.dispatch(parcel)
            else:
                parcel.source.delivered(parcel)
            self.asking.popleft()


class EncodeEngine(PoolEngine):
    """Drafts with a builder to which only items are its own business."""

    def draft(self, start: int) -> IterationPlan:
        self._builder = builder = EncodeBuilder(self.state, start)
        self.policy.schedule(builder)
        return builder.plan


def coming(state: ServingState) -> dict[Any, Any]:
    """For whom room is reserved already."""
    return getattr(state, "coming", {})


def _nowhere(*_: Any) -> None:
    raise AssertionError("an engine whose requests go nowhere else")
