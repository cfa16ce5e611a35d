"""A request as the simulator follows it: when it passed what, and where its time to first token went."""

from collections.abc import Iterable, Sequence
from typing import Any

import simpy

from policies.request_state import RequestState

NEVER = -1  # a time that has not come


class ServedRequest(RequestState):
    """Times and durations in integer nanoseconds, filled in by the recorder."""

    prepared = admitted = first_token = finish = NEVER
    encode = prefill = reservation_wait = budget_wait = 0  # parts of the time to first token
    transfer = requeued = 0  # more of them: on the way to another engine; in the queues of engines after the first
    entered = NEVER  # when it came to the engine after the first one
    exposed = 0  # what the engine's own loop pays for it as it takes it in
    path: tuple[str, ...] = ()  # engines it came to, where there are several
    engine: Any = None  # where it is, or to which it goes
    parcel: Any = None  # while it is on the way from one engine to another
    status = ""  # empty while it is under way
    reason = ""
    done: simpy.Event | None = None  # for a client that waits for the answer

    given = NEVER  # when prefill gave the token from which it decodes, the next decode step, tokens in the KV then
    given_step = given_tokens = 0
    segments: Sequence[tuple[int, int, int, int]] = ()  # of those before it: time, step, number of steps, tokens


def served(requests: Iterable[RequestState]) -> Iterable[ServedRequest]:
    """The same requests: an engine's state holds none but those that were delivered to it."""
    return requests  # type: ignore[return-value]
