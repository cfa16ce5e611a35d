"""SimPy's clock by the wall: events happen when their time has come, and nothing waits that could happen now."""

from __future__ import annotations

import math
import time

import simpy.rt

NANOSECOND = 1e-9
NAP = 0.1  # seconds: how long a signal may wait for the next look


class RealTime(simpy.rt.RealtimeEnvironment):
    """Looks again after every nap: what a signal handler schedules must not wait for the next arrival."""

    def __init__(self) -> None:
        super().__init__(0, factor=NANOSECOND, strict=False)

    def step(self) -> None:
        while NAP < self._due() < math.inf:
            time.sleep(NAP)
        super().step()

    def _due(self) -> float:
        """Seconds until the next event; without one, forever."""
        return self.real_start + (self.peek() - self.env_start) * self.factor - time.monotonic()
