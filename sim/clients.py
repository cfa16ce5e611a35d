"""The clients' side: requests sent at their times, or one after the other by a number of users."""

from collections.abc import Callable, Generator, Iterator

import numpy as np
import simpy

from sim.clock import now
from sim.served import ServedRequest
from workloads.arrivals import Concurrency
from workloads.errors import InputError
from workloads.frozen import LATEST
from workloads.request import Request

Send = Callable[[Request], ServedRequest]
HandingOver = Callable[[], simpy.Event | None]  # what a client waits for when its answer is complete


def open_loop(env: simpy.Environment, requests: Iterator[Request], send: Send) -> Generator[simpy.Event, None, None]:
    """Every request at its scheduled time, however the server fares."""
    time = now(env)
    for request in requests:
        if request.arrival > time:
            yield env.timeout(request.arrival - time)
            time = request.arrival
        send(request)


def start_users(
    env: simpy.Environment,
    requests: Iterator[Request],
    num_requests: int | None,
    send: Send,
    handing_over: HandingOver,
    load: Concurrency,
    rng: np.random.Generator,
) -> None:
    """A closed loop: each user takes the next request when its last one has ended, after a time to think.

    Users for whom there is no request do not start.
    """
    for _ in range(load.users if num_requests is None else min(load.users, num_requests)):
        env.process(_user(env, requests, send, handing_over, load, rng))


def _user(
    env: simpy.Environment,
    requests: Iterator[Request],
    send: Send,
    handing_over: HandingOver,
    load: Concurrency,
    rng: np.random.Generator,
) -> Generator[simpy.Event, None, None]:
    for request in requests:
        served = send(request)
        if not served.status:
            served.done = env.event()
            yield served.done
        if (over := handing_over()) is not None:
            yield over
        pause = load.think(rng)
        if now(env) + pause > LATEST:
            raise InputError("the run takes more than 146 years: think_time is too long for so many requests")
        if pause:
            yield env.timeout(pause)
