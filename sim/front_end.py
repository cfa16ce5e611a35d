"""The front end: before a request is queued, its images are fetched, decoded and resized by a few CPU workers."""

from collections.abc import Callable, Generator
from typing import Annotated

import simpy
from pydantic import BaseModel, ConfigDict, Field

from sim.served import ServedRequest

Milliseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class FrontEnd(BaseModel):
    """How image preparation is staffed and what it costs; the defaults prepare everything in no time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: Annotated[int, Field(ge=1, le=100_000)] = 1
    ms_per_megapixel: Milliseconds = 0.0  # of the original picture; measured servers take 40-100, one at a time
    ms_per_request: Milliseconds = 0.0  # for every request, text alone included

    def nanoseconds(self, request: ServedRequest) -> int:
        """What preparing this request takes one worker."""
        pixels = sum(item.pixels for item in request.items) if request.items else 0
        return round(self.ms_per_request * 1e6 + self.ms_per_megapixel * pixels)


class Preparation:
    """The front end at work: one request a worker, first come first served, then `deliver`."""

    def __init__(self, env: simpy.Environment, front_end: FrontEnd, deliver: Callable[[ServedRequest], None]) -> None:
        self.env = env
        self.front_end = front_end
        self.deliver = deliver
        self.workers = simpy.Resource(env, front_end.workers)

    def prepare(self, request: ServedRequest) -> None:
        """Deliver the request once it is prepared; one that needs no preparation goes straight through."""
        elapsed = self.front_end.nanoseconds(request)
        if elapsed:
            self.env.process(self._work(request, elapsed))
        else:
            self.deliver(request)

    def _work(self, request: ServedRequest, elapsed: int) -> Generator[simpy.Event, None, None]:
        with self.workers.request() as worker:
            yield worker
            if not request.status:  # cancelled while it waited for a worker
                yield self.env.timeout(elapsed)
        if not request.status:
            self.deliver(request)
