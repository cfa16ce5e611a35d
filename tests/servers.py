"""Whole small runs on SimPy with a backend of about 1 ms an iteration, every rule checked on the way."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
import simpy
from acting import acting
from checks import CheckedState, check, checked_type, content, everyone, fingerprint, named_blockers
from rules import Step, checked_state

from policies.limits import Limits
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.prefix_state import state_type
from policies.side_stream import SideStreamState
from sim import Run
from sim.backend import Outcome
from sim.decode_run import SHIFT, DecodeRun
from sim.engine import Engine
from sim.recorder import Recorder
from sim.samples import WeightedSample
from sim.served import ServedRequest
from sim.side_stream import SideStream, SideStreamEngine, SideStreamRecorder
from workloads.request import Request

MANY_ITERATIONS = 3000  # more than any of these workloads needs: past it the server goes round in circles


class Checking(Engine):
    """Drafts everything twice and looks whether that changed anything; counts where every request is."""

    state: CheckedState
    recorder: Recorder

    def draft(self, start: int) -> IterationPlan:
        check(self.state)
        before = fingerprint(self.state)
        plan, again = super().draft(start), super().draft(start)
        assert content(plan) == content(again), "the same draft twice gives two plans"
        assert fingerprint(self.state) == before, "drafting changed the state"
        prepared = {r for r in self.recorder.under_way if r.prepared >= 0}
        assert prepared == set(everyone(self.state)), "a request is lost, or left and still there"
        if not (plan or plan.changes_alone):
            named_blockers(self.state, self.policy, start)
        return plan

    def _launch(self, plan: IterationPlan, start: int, upcoming: float) -> Outcome:
        outcome, cache = super()._launch(plan, start, upcoming), self.state.cache
        rows = cache.held_rows + cache.pending_rows + cache.released_rows
        assert cache.entries or not (outcome.encode or plan.encode or rows), "the log would lose what the encoder has"
        return outcome


class CheckedEngine(Checking):
    pass


class CheckedSideStreamEngine(Checking, SideStreamEngine):
    pass


@dataclass
class SmallBackend:
    """1 ms an iteration and a little for what is in it; runs of decodes too. `fails`: items, by modality and key."""

    host: int = 100_000
    compute: int = 900_000
    prefill_token: int = 0
    encode_token: int = 0
    fails: frozenset[Any] = frozenset()
    steps: list[Step] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    num_encodes: int = 0
    most_iterations: int = MANY_ITERATIONS

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: float) -> Outcome:
        assert plan, "an empty plan was launched"
        assert len(self.steps) < self.most_iterations, "the server goes round in circles"
        self.steps.append(Step.of(plan))
        compute = self.compute + self.prefill_token * plan.num_prefill_tokens
        total = self.host + compute
        if not plan.decodes_only or max_iterations == 1 or total >= horizon:
            return self._single(plan, compute)
        count = int(min(max_iterations, -(-horizon // total)))
        return Outcome(self.host, 0, compute, total * count, DecodeRun(count, total << SHIFT, 0))

    def wait(self, handle: Outcome) -> Outcome:
        return handle

    def _single(self, plan: IterationPlan, compute: int) -> Outcome:
        encode = self.encode_token * plan.encoder_tokens
        keys = {r.keys[i] for r, i in plan.encode}
        if not self.fails & {key[:2] for key in keys}:
            keys = set()
        failed = list(dict.fromkeys(r for r, i in (*plan.encode, *plan.attached) if r.keys[i] in keys))
        total = self.host + encode + compute
        return Outcome(self.host, encode, compute, total, failed=failed, reason="out of memory" if failed else "")


class Tables(Run):
    """The tables of a run that had no scenario."""

    _warms_up = False

    def __init__(self, recorder: Recorder, limits: Limits) -> None:
        self._log, self._requests, self._limits = recorder.iterations, recorder.requests, limits

    @property
    def limits(self) -> Limits:
        return self._limits


@dataclass
class Served:
    """A run that is over."""

    state: CheckedState
    policy: Policy
    recorder: Recorder
    requests: dict[int, ServedRequest]
    steps: list[Step]
    verdict: str
    blockers: dict[int, str]

    @cached_property
    def table(self) -> pd.DataFrame:
        return self.tables.requests.set_index("request_id")

    @property
    def iterations(self) -> pd.DataFrame:
        return self.tables.iterations

    @property
    def itl(self) -> WeightedSample:
        return self.tables.itl_sample

    @cached_property
    def tables(self) -> Tables:
        return Tables(self.recorder, self.state.limits)

    @property
    def status(self) -> dict[int, str]:
        return {id: r.status for id, r in self.requests.items()}

    def encoded(self) -> list[tuple[int, int]]:
        return [item for step in self.steps for item in step.encode]


def serve(
    requests: Sequence[Request],
    policy: str | Policy,
    limits: Limits,
    *,
    cancels: Mapping[int, int] | None = None,
    backend: SmallBackend | None = None,
    fast_path: bool = True,
) -> Served:
    """Serve the requests at their arrivals, cancel some at their times (ns), and check everything on the way."""
    env, backend = simpy.Environment(0), backend or SmallBackend()
    policy = acting(policy)
    engine = _engine(env, policy, limits, backend, fast_path)
    state, recorder = engine.state, engine.recorder
    served: dict[int, ServedRequest] = {}
    for asked in requests:
        env.process(_send(env, engine, asked, served))
    for id, time in (cancels or {}).items():
        env.process(_cancel(env, engine, id, time, served))
    env.run()
    stuck = list(recorder.under_way)
    named = named_blockers(state, policy, int(env.now))
    assert set(named) == set(stuck)
    for r in stuck:
        recorder.leave_unfinished(r, "stalled", named[r])
    blocked = {r.id: reason for r, reason in named.items()}
    verdict = "stalled" if stuck else "finished"
    return Served(state, policy, recorder, served, backend.steps, verdict, blocked)


def _engine(env: simpy.Environment, policy: Policy, limits: Limits, backend: SmallBackend, fast_path: bool) -> Checking:
    if not limits.encoder_side_stream_max_ahead:
        return CheckedEngine(env, checked_state(policy, limits), policy, backend, Recorder(), fast_path=fast_path)
    state, recorder = checked_type(state_type(SideStreamState, limits))(limits), SideStreamRecorder()
    engine = CheckedSideStreamEngine(env, state, policy, backend, recorder, fast_path=fast_path)
    shared = limits.encoder_side_stream_interference
    engine.stream = SideStream(shared.factor if shared else 1.5)
    return engine


def _send(
    env: simpy.Environment, engine: Engine, asked: Request, served: dict[int, ServedRequest]
) -> Generator[simpy.Event, None, None]:
    yield env.timeout(asked.arrival)
    served[asked.id] = ServedRequest(asked)
    engine.recorder.arrive(served[asked.id])
    engine.deliver(served[asked.id])


def _cancel(
    env: simpy.Environment, engine: Engine, id: int, time: int, served: dict[int, ServedRequest]
) -> Generator[simpy.Event, None, None]:
    yield env.timeout(time)
    if id in served:
        engine.cancel(served[id], "cancelled")
