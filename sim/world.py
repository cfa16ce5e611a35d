"""What a scenario describes, ready to run: an engine with its backend, front end and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy

from policies.prefix_state import state_type
from policies.request_state import RequestState
from policies.serving import ServingState
from sim.backend import AccountingBackend
from sim.beyond import Beyond
from sim.clients import open_loop, start_users
from sim.clock import now
from sim.engine import Engine
from sim.event_loop import EventLoop
from sim.front_end import Preparation
from sim.iteration_log import IterationLog
from sim.memory_log import MemoryLog
from sim.profiles import Profile
from sim.recorder import Recorder
from sim.resolve import Resolved, resolve
from sim.scenario import Scenario
from sim.served import ServedRequest
from sim.stalled import blockers
from sim.uncertain import engine_backend
from workloads.request import Request

__all__ = ["Resolved", "Server", "World", "resolve"]


class Server(Protocol):
    """What stands behind the front end."""

    def deliver(self, request: ServedRequest) -> None: ...

    def cancel(self, request: ServedRequest, reason: str) -> None: ...


class World:
    """One engine with everything around it, on one SimPy environment; `scenario` must be resolved.

    Another world overrides what differs there: the environment, the engine or the backend.
    """

    engine_type: type[Engine] = Engine
    state_type: type[ServingState] = ServingState
    recorder_type: type[Recorder] = Recorder
    stepwise = False  # one iteration at a time, whatever the scenario says
    origin = "simulated"  # what its figures are, as tables label them
    memory_log: MemoryLog | None = None  # of encoder outputs, where the scenario asks for their memory

    def __init__(self, scenario: Scenario, profile: Profile, progress: Callable[[int], None] | None = None) -> None:
        self.scenario = scenario
        self.profile = profile
        self.progress = progress
        self.priced: list[tuple[str, Beyond, IterationLog]] = []  # of each backend that prices: by which profile
        self.env = self._environment()
        self.server = self._server()
        kind = EventLoop if scenario.front_end.event_loop else Preparation
        front_end = scenario.front_end.drawn(scenario.simulation.draw)
        self.front_end: EventLoop | Preparation = kind(self.env, front_end, self.server.deliver)
        self._timeout = round((scenario.clients.timeout or 0) * 1e9)
        self._start_clients()

    def spans(self) -> dict[str, list[tuple[int, int]]]:
        """When something was busy (ns) that iterations do not tell of, by the summary's figure of it."""
        return {}

    @property
    def source(self) -> str:
        """Where its times come from, in a line."""
        return f"simulated with the costs of {self.scenario.profile}, {self.profile.label}"

    def blockers(self) -> dict[RequestState, str]:
        """Whom a run that stalled leaves waiting for what."""
        return blockers(self.state, self.scenario.policy, now(self.env))

    def leave_unfinished(self, request: ServedRequest, status: str, reason: str) -> None:
        """The run is over and the request is not."""
        self.recorder.leave_unfinished(request, status, reason)

    def _environment(self) -> simpy.Environment:
        return simpy.Environment(0)

    def _server(self) -> Server:
        scenario = self.scenario
        self.recorder = self.recorder_type(
            keep_iterations=scenario.measure.iterations,
            clients_wait=scenario.workload.closed_loop is not None,
            progress=self.progress,
        )
        self.state = state_type(self.state_type, scenario.engine)(scenario.engine, scenario.policy.queue_key)
        self.backend = self._with_memory_log(self._backend())
        self.engine = self.engine_type(
            self.env, self.state, scenario.policy, self.backend, self.recorder, **self._engine_options()
        )
        return self.engine

    def _engine_options(self) -> dict[str, bool]:
        settings = self.scenario.simulation
        return {
            "fast_path": settings.fast_path and not self.stepwise,
            "end_when_out_of_memory": settings.out_of_memory == "end_run",
        }

    def _backend(self) -> AccountingBackend:
        backend = engine_backend(self.scenario, self.profile, self.state, self.recorder)
        self.priced.append((self.scenario.profile, backend.beyond, self.recorder.iterations))
        return backend

    def _with_memory_log(self, backend: AccountingBackend) -> AccountingBackend:
        """With a log of encoder outputs where the scenario asks for their memory, and there is none within it yet."""
        if not self.scenario.measure.allocator or self.memory_log is not None:
            return backend
        self.memory_log = MemoryLog(backend)
        return self.memory_log

    def _start_clients(self) -> None:
        scenario = self.scenario
        requests = scenario.workload.requests(seed=scenario.seed, model=scenario.model)
        users = scenario.workload.closed_loop
        if users is None:
            self.env.process(open_loop(self.env, requests, self.send))
        else:
            rng, number = np.random.default_rng([scenario.seed, 1]), scenario.workload.num_requests
            start_users(self.env, requests, number, self.send, self.front_end.handing_over, users, rng)

    def send(self, request: Request) -> ServedRequest:
        """A client sends a request now."""
        served = ServedRequest(request)
        served.arrival = now(self.env)
        self.recorder.arrive(served)
        if self._timeout:
            expired = self.env.timeout(self._timeout)
            expired.callbacks.append(lambda _: self.server.cancel(served, "the client's timeout"))
        self.front_end.prepare(served)
        return served
