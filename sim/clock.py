"""The engine's place in SimPy's order of events: after everything else that is stamped with the same time."""

import simpy
from simpy.events import EventPriority

AFTER_ALL = EventPriority(2)  # SimPy itself uses 0 and 1


class Later(simpy.Event):
    """A timeout that comes after all ordinary events of its time, those made at that time included."""

    def __init__(self, env: simpy.Environment, delay: int) -> None:
        self.env = env
        self.callbacks = []
        self._value = None
        self._ok = True
        env.schedule(self, AFTER_ALL, delay)


def now(env: simpy.Environment) -> int:
    """The time in nanoseconds: an integer, since all delays are."""
    return env._now  # type: ignore[return-value]  # the property `env.now` takes longer than all the rest
