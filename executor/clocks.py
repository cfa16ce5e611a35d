"""What time an iteration takes: by the wall, the thread's processor time, CUDA's events, or the cost model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

NANOSECONDS_PER_MS = 1e6


class Timer(Protocol):
    """Marks moments in the device's work and tells how far they are apart."""

    def mark(self) -> Any:
        """The moment at which everything launched so far is done."""

    def between(self, start: Any, end: Any) -> int:
        """Nanoseconds."""


class HostTimer:
    """Waits for the device at every mark, then looks at a clock of the host."""

    def __init__(self, now: Callable[[], int], device: torch.device) -> None:
        self._now = now
        self._device = device

    def mark(self) -> int:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._now()

    def between(self, start: int, end: int) -> int:
        return end - start


class EventTimer:
    """CUDA events: nothing waits until somebody asks how long it took."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> int:
        end.synchronize()
        return round(start.elapsed_time(end) * NANOSECONDS_PER_MS)


class HostMeter:
    """Adds up the time in which the engine is at work on the host: what the device has to wait for."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: int | None = None
        self._total = 0

    def start(self) -> None:
        """Does nothing if it runs already."""
        if self._since is None:
            self._since = self._now()

    def stop(self) -> None:
        if self._since is not None:
            self._total += self._now() - self._since
            self._since = None

    def take(self) -> int:
        """Nanoseconds since the last time it was asked; it must stand still."""
        assert self._since is None, "the meter is read while it runs"
        total, self._total = self._total, 0
        return total


def timer_and_meter(clock: str, device: torch.device) -> tuple[Timer, HostMeter]:
    """For every clock but the model's; host time is told by the same clock where it can be."""
    now = time.thread_time_ns if clock == "thread_time" else time.perf_counter_ns
    return EventTimer() if clock == "cuda" else HostTimer(now, device), HostMeter(now)
