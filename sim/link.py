"""The link between engines: one sender at a time, first come first served, at so many bytes a second."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Annotated, Any

import simpy
from pydantic import Field

from sim.clock import now
from workloads.errors import InputError
from workloads.frozen import LATEST, Frozen

Latency = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Bandwidth = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class Link(Frozen):
    """How fast it is. The sender has it to itself for bytes / bandwidth; then they are under way for the latency."""

    gigabytes_per_second: Bandwidth  # of 1e9 bytes
    latency_ms: Latency = 0.0


class LinkAtWork:
    """Carries what engines send one another, and counts it."""

    def __init__(self, env: simpy.Environment, link: Link) -> None:
        self.env = env
        self.spans: list[tuple[int, int]] = []  # when it had a sender, in ns
        self._bandwidth = link.gigabytes_per_second  # bytes a nanosecond
        self._latency = round(link.latency_ms * 1e6)
        self._sender = simpy.Resource(env, 1)

    def send(self, num_bytes: int, arrive: Callable[[], None]) -> None:
        """From now on; `arrive` is called when it is there. Nothing to send takes its turn and the latency too."""
        self.env.process(self._carry(round(num_bytes / self._bandwidth), arrive))

    def _carry(self, elapsed: int, arrive: Callable[[], None]) -> Generator[simpy.Event, Any, None]:
        with self._sender.request() as turn:
            yield turn
            if now(self.env) + elapsed > LATEST:
                raise InputError("the link is at work past 146 years: it is too slow for what is sent")
            yield self.env.timeout(elapsed)
            self.spans.append((now(self.env) - elapsed, now(self.env)))
        yield self.env.timeout(self._latency)
        arrive()
