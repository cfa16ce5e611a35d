"""The front end: before a request is queued, its images are fetched, decoded and resized by a few CPU workers."""

from collections.abc import Callable, Generator
from typing import Annotated, Any

import simpy
from pydantic import BaseModel, ConfigDict, Field

from sim.clock import now
from sim.served import ServedRequest
from workloads.errors import InputError
from workloads.frozen import LATEST

Milliseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class FrontEnd(BaseModel):
    """How image preparation is staffed and what it costs; the defaults prepare everything in no time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: Annotated[int, Field(ge=1, le=100_000)] = 1
    ms_per_megapixel: Milliseconds = 0.0  # of the original picture; measured servers take 40-100, one at a time
    ms_per_request: Milliseconds = 0.0  # for every request, text alone included

    def nanoseconds(self, request: ServedRequest) -> int:
        """What preparing this request takes one worker."""
        pixels = sum(item.pixels for item in request.items)
        return round(self.ms_per_request * 1e6 + self.ms_per_megapixel * pixels)


class Preparation:
    """The front end at work: first come first served, one request a worker, then `deliver`."""

    def __init__(self, env: simpy.Environment, front_end: FrontEnd, deliver: Callable[[ServedRequest], None]) -> None:
        self.env = env
        self.front_end = front_end
        self.deliver = deliver
        self._for_all = front_end.ms_per_request > 0  # requests without images take time too
        self._queue = simpy.Store(env)
        self._workers = 0  # hired so far: no more than were ever needed at one time
        self._in_hand = 0  # requests queued or worked on

    def prepare(self, request: ServedRequest) -> None:
        """Deliver the request once it is prepared; one that needs no preparation goes straight through."""
        elapsed = self.front_end.nanoseconds(request) if request.items or self._for_all else 0
        if not elapsed:
            self.deliver(request)
            return
        self._in_hand += 1
        if self._workers < min(self._in_hand, self.front_end.workers):
            self._workers += 1
            self.env.process(self._work())
        self._queue.put((request, elapsed))

    def _work(self) -> Generator[simpy.Event, Any, None]:
        while True:
            request, elapsed = yield self._queue.get()
            if not request.status:  # else it was cancelled while it waited for a worker
                if now(self.env) + elapsed > LATEST:
                    raise InputError("the front end is at work past 146 years: what a request costs it is too much")
                yield self.env.timeout(elapsed)
            self._in_hand -= 1
            if not request.status:
                self.deliver(request)
