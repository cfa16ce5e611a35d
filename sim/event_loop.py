"""A front end of one thread with an event loop, as a Python server's: while it prepares images, nothing else moves.

A round takes all requests that are there, one after the other. Tokens that the engine makes meanwhile are handed over
to their clients when the round is over, and requests that come meanwhile are for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from sim.clock import Later, now
from sim.front_end import FrontEnd, Ints, work
from sim.served import ServedRequest


class EventLoop:
    """At work in rounds; knows for every token when its client got it."""

    def __init__(self, env: simpy.Environment, front_end: FrontEnd, deliver: Callable[[ServedRequest], None]) -> None:
        self.env = env
        self.front_end = front_end
        self.deliver = deliver
        self._ready: list[ServedRequest] = []
        self._starts: list[int] = []  # of rounds
        self._ends: list[int] = []
        self._idle: simpy.Event | None = None
        self._over: simpy.Event | None = None  # the round under way, for those who wait for its end
        env.process(self._run())

    def prepare(self, request: ServedRequest) -> None:
        """The request is there; it is delivered to the engine when its turn is over."""
        self._ready.append(request)
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def handing_over(self) -> simpy.Event | None:
        """What a client waits for when its answer is complete now; None where it gets it at once."""
        busy = len(self._starts) > len(self._ends) and now(self.env) > self._starts[-1]
        if busy and self._over is None:
            self._over = self.env.event()
        return self._over if busy else None

    def handed_over(self, made: Ints) -> Ints:
        """When clients get what is made at these times (ns)."""
        if not self._starts:
            return made
        ends = np.array([*self._ends, now(self.env)][: len(self._starts)])
        last = np.searchsorted(self._starts, made, side="left") - 1  # the last round that had begun before
        return np.where(last >= 0, np.maximum(made, ends[np.maximum(last, 0)]), made)

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            if not self._ready:
                self._idle = self.env.event()
                yield self._idle
            yield Later(self.env, 0)  # after all that comes at this time
            ready, self._ready = self._ready, []
            self._starts.append(now(self.env))
            for request in ready:
                if not request.status:  # else it was cancelled
                    self.front_end.expose(request)
                    yield work(self.env, self.front_end.nanoseconds(request))
                if not request.status:
                    self.deliver(request)
            self._ends.append(now(self.env))
            if self._over is not None:
                self._over.succeed()
                self._over = None
