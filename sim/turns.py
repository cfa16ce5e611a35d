"""The order of several engines' turns at one moment: after everything else, and always the same."""

from __future__ import annotations

import simpy
from simpy.events import NORMAL, EventPriority

from sim.clock import AFTER_ALL


class Turns(simpy.Environment):
    """An environment in which engines have ranks: those that feed others come before them.

    So a run does not depend on which engine happened to be scheduled first, nor on how many iterations it took in
    one step.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._ranks: dict[simpy.Process | None, int] = {}

    def take_rank(self, rank: int) -> None:
        """For the process that is running now."""
        self._ranks[self.active_process] = rank

    def schedule(self, event: simpy.Event, priority: EventPriority = NORMAL, delay: simpy.core.SimTime = 0) -> None:
        if priority == AFTER_ALL:
            priority = EventPriority(AFTER_ALL + self._ranks[self.active_process])
        super().schedule(event, priority, delay)

    def peek(self) -> simpy.core.SimTime:
        """When something happens next, as the engine that asks sees it: a later one's turn comes after its own."""
        if not self._queue:
            return simpy.core.Infinity
        time, priority, _, _ = self._queue[0]
        rank = self._ranks.get(self.active_process)
        return time + 1 if rank is not None and priority > AFTER_ALL + rank else time
