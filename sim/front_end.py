"""The front end: before a request is queued, its images are fetched, decoded and resized by a few CPU workers."""

from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
import simpy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.clock import now
from sim.served import ServedRequest
from workloads.errors import InputError
from workloads.frozen import LATEST, Positive
from workloads.request import MultimodalItem

Ints = NDArray[np.int64]
Milliseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Large(BaseModel):
    """What pixels cost where many are worked on at a time: memory that an allocator does not keep is made anew."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above_megapixels: Positive
    of: Literal["image", "request"]  # what is worked on at a time
    ms_per_megapixel: Milliseconds

    def times(self, factor: float) -> "Large":
        return self.model_copy(update={"ms_per_megapixel": self.ms_per_megapixel * factor})


class PixelCost(BaseModel):
    """What the original pictures of a request cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ms_per_megapixel: Milliseconds = 0.0
    ms_per_image: Milliseconds = 0.0  # besides its pixels
    large: Large | None = None  # in place of ms_per_megapixel

    def times(self, factor: float) -> Self:
        """All costs that much higher."""
        own = {name: getattr(self, name) * factor for name in type(self).model_fields if name.startswith("ms_per_")}
        parts = {name: part.times(factor) for name in ("large", "exposed") if (part := getattr(self, name, None))}
        return self.model_copy(update=own | parts)

    def of_items(self, items: Sequence[MultimodalItem]) -> float:
        """Nanoseconds."""
        pixels = sum(item.pixels for item in items)
        rates = self.ms_per_image * 1e6 * len(items) + self.ms_per_megapixel * pixels
        if self.large is None:
            return rates
        return rates + (self.large.ms_per_megapixel - self.ms_per_megapixel) * self._large_pixels(items, self.large)

    def _large_pixels(self, items: Sequence[MultimodalItem], large: Large) -> int:
        sizes = [item.pixels for item in items]
        sizes = sizes if large.of == "image" else [sum(sizes)]
        return sum(size for size in sizes if size > large.above_megapixels * 1e6)


NOTHING = PixelCost()
STREAM = 1  # sets the front end's draws apart from others of the same number


class FrontEnd(PixelCost):
    """How image preparation is staffed and what it costs; the defaults prepare everything in no time."""

    workers: Annotated[int, Field(ge=1, le=100_000)] = 1
    ms_per_request: Milliseconds = 0.0  # for every request, text alone included
    event_loop: bool = False  # its one thread also hands tokens over, and only when it is done with all who wait
    spread: Annotated[float, Field(ge=0, le=1)] = 0.0  # relative standard deviation by which all costs may be off
    exposed: PixelCost = NOTHING  # what is left to the engine's own loop: paid as it takes a request in

    @model_validator(mode="after")
    def _one_thread(self) -> "FrontEnd":
        if self.event_loop and self.workers > 1:
            raise ValueError(f"an event_loop is one thread: workers is {self.workers}")
        return self

    def drawn(self, number: int | None) -> "FrontEnd":
        """With costs that are off by a draw of this number, alike for all scenarios; None draws nothing."""
        if number is None or not self.spread:
            return self
        return self.times(float(np.exp(self.spread * np.random.default_rng([number, STREAM]).standard_normal())))

    def nanoseconds(self, request: ServedRequest) -> int:
        """What preparing this request takes one worker."""
        return round(self.ms_per_request * 1e6 + self.of_items(request.items))

    def expose(self, request: ServedRequest) -> None:
        """Say what is left to the engine."""
        if self.exposed is not NOTHING:
            request.exposed = round(self.exposed.of_items(request.items))


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
        if request.items:
            self.front_end.expose(request)
        if not elapsed:
            self.deliver(request)
            return
        self._in_hand += 1
        if self._workers < min(self._in_hand, self.front_end.workers):
            self._workers += 1
            self.env.process(self._work())
        self._queue.put((request, elapsed))

    def handing_over(self) -> simpy.Event | None:
        """What a client waits for when its answer is complete: nothing."""
        return None

    def handed_over(self, made: Ints) -> Ints:
        """When clients get what is made at these times (ns): at once."""
        return made

    def _work(self) -> Generator[simpy.Event, Any, None]:
        while True:
            request, elapsed = yield self._queue.get()
            if not request.status:  # else it was cancelled while it waited for a worker
                yield work(self.env, elapsed)
            self._in_hand -= 1
            if not request.status:
                self.deliver(request)


def work(env: simpy.Environment, elapsed: int) -> simpy.Event:
    """Until it is done. Raises InputError where the clock ends before that."""
    if now(env) + elapsed > LATEST:
        raise InputError("the front end is at work past 146 years: what a request costs it is too much")
    return env.timeout(elapsed)
