"""Ctrl-C between two events instead of in the middle of one, so that what has been recorded so far is sound."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import simpy
from simpy.events import URGENT

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def between_events(env: simpy.Environment) -> Iterator[None]:
    """While this lasts, a signal that would raise KeyboardInterrupt does so when the event under way is done.

    A second one does so at once. Signals that somebody else handles are left alone.
    """
    ours = [number for number in SIGNALS if _raises(number)]
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        event = simpy.Event(env)
        event.callbacks.append(_raise)
        event._ok, event._value = True, None
        env.schedule(event, priority=URGENT)

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)


def _raises(number: int) -> bool:
    """Only the main thread may change what a signal does."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(number) is signal.default_int_handler


def _raise(event: simpy.Event) -> None:
    raise KeyboardInterrupt
