"""Builds what a scenario describes: resolved limits, and an engine with its backend, front end and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import simpy

from policies.limits import MAX_BLOCKS, Interference, Limits
from policies.serving import ServingState
from sim.backend import AccountingBackend
from sim.clients import open_loop, start_users
from sim.clock import now
from sim.cost_model import CostModel
from sim.engine import Engine
from sim.front_end import FrontEnd, Preparation
from sim.memory import MemoryLedger
from sim.profiles import Profile, load_profile
from sim.recorder import Recorder
from sim.scenario import Scenario
from sim.served import ServedRequest
from sim.simulated import SimulatedBackend
from workloads.request import Request


class Resolved(NamedTuple):
    """A scenario with every default filled in, and what had to be changed, one line each."""

    scenario: Scenario
    profile: Profile
    notes: list[str]


def resolve(scenario: Scenario) -> Resolved:
    """Budgets, cache rows and KV blocks as numbers; a resolved scenario resolves to itself."""
    profile, model = load_profile(scenario.profile), scenario.model
    largest = scenario.workload.largest_item(seed=scenario.seed, model=model)
    row_bytes, budgeted = model.embedding_row_bytes, scenario.policy.budgeted
    limits, notes = scenario.engine.resolve(largest_item=largest, row_bytes=row_bytes, budgeted=budgeted)
    if limits.num_kv_blocks is None:
        limits = limits.model_copy(update={"num_kv_blocks": _kv_blocks(scenario, limits, profile)})
    if limits.encoder_side_stream_max_ahead and limits.encoder_side_stream_interference is None:
        shared = _interference(profile)
        limits = limits.model_copy(update={"encoder_side_stream_interference": shared})
        notes.append(f"encoder_side_stream_interference {shared.factor:g}: {shared.source}")
    if largest is not None and scenario.front_end == FrontEnd():
        notes.append("front_end costs nothing: images are prepared in no time")
    if profile.model != model.name:
        notes.append(f"priced as {profile.model}: profile {scenario.profile} was not measured on {model.name}")
    return Resolved(scenario.model_copy(update={"engine": limits}), profile, notes)


def _interference(profile: Profile) -> Interference:
    """What the profile states, or halfway between perfect overlap (1) and taking turns (2)."""
    stated = profile.interference
    if stated is None:
        return Interference(factor=1.5, source="an assumption, halfway between perfect overlap and taking turns")
    return Interference(factor=stated.value, source=stated.source)


def _kv_blocks(scenario: Scenario, limits: Limits, profile: Profile) -> int:
    """What an engine that profiles its encoder leaves for the KV cache; none did before budgets."""
    model, ledger = scenario.model, MemoryLedger.from_profile(profile)
    tokens, rows = limits.encoder_max_num_tokens, limits.encoder_cache_rows
    blocks = ledger.num_kv_blocks(
        limits.free_gpu_memory_fraction,
        limits.block_size,
        model.kv_bytes_per_token,
        boundary_encoder_tokens=tokens if isinstance(tokens, int) else 0,
        encoder_cache_bytes=rows * model.embedding_row_bytes if isinstance(rows, int) else 0,
    )
    return min(blocks, MAX_BLOCKS)


class World:
    """One engine with everything around it, on one SimPy environment; `scenario` must be resolved.

    Another world overrides what differs there: the environment, the engine or the backend.
    """

    engine_type: type[Engine] = Engine
    state_type: type[ServingState] = ServingState
    recorder_type: type[Recorder] = Recorder
    stepwise = False  # one iteration at a time, whatever the scenario says
    origin = "simulated"  # what its figures are, as tables label them

    def __init__(self, scenario: Scenario, profile: Profile, progress: Callable[[int], None] | None = None) -> None:
        self.scenario = scenario
        self.profile = profile
        self.env = self._environment()
        self.recorder = self.recorder_type(keep_iterations=scenario.measure.iterations, progress=progress)
        self.state = self.state_type(scenario.engine)
        self.backend = self._backend()
        self.engine = self.engine_type(
            self.env,
            self.state,
            scenario.policy,
            self.backend,
            self.recorder,
            fast_path=scenario.simulation.fast_path and not self.stepwise,
            end_when_out_of_memory=scenario.simulation.out_of_memory == "end_run",
        )
        self._preparation = Preparation(self.env, scenario.front_end, self.engine.deliver)
        self._timeout = round((scenario.clients.timeout or 0) * 1e9)
        self._start_clients()

    @property
    def encoder_spans(self) -> list[tuple[int, int]] | None:
        """When a side stream ran (ns), where there is one: iterations do not tell."""
        return None

    @property
    def source(self) -> str:
        """Where its times come from, in a line."""
        return f"simulated with the costs of {self.scenario.profile}, {self.profile.label}"

    def _environment(self) -> simpy.Environment:
        return simpy.Environment(0)

    def _backend(self) -> AccountingBackend:
        limits, model = self.scenario.engine, self.scenario.model
        kv_bytes = self.state.pool.num_blocks * limits.block_size * model.kv_bytes_per_token
        cost, ledger = CostModel.from_profile(self.profile), MemoryLedger.from_profile(self.profile)
        return SimulatedBackend(cost, self.state, ledger, kv_bytes=kv_bytes, row_bytes=model.embedding_row_bytes)

    def _start_clients(self) -> None:
        scenario = self.scenario
        requests = scenario.workload.requests(seed=scenario.seed, model=scenario.model)
        users = scenario.workload.closed_loop
        if users is None:
            self.env.process(open_loop(self.env, requests, self.send))
        else:
            rng, number = np.random.default_rng([scenario.seed, 1]), scenario.workload.num_requests
            start_users(self.env, requests, number, self.send, users, rng)

    def send(self, request: Request) -> ServedRequest:
        """A client sends a request now."""
        served = ServedRequest(request, now(self.env))
        self.recorder.arrive(served)
        if self._timeout:
            expired = self.env.timeout(self._timeout)
            expired.callbacks.append(lambda _: self.engine.cancel(served, "the client's timeout"))
        self._preparation.prepare(served)
        return served
