"""Whole small runs on several engines, every rule checked on the way, and that every request is in just one place."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from acting import POLICIES
from checks import CheckedState, check, checked_type, content, everyone, fingerprint
from servers import MANY_ITERATIONS, SmallBackend
from small_loads import Load

from policies.encode_only import EncodeState
from policies.handover import DecodeState, EncodedPrefillState, EncodedState, PrefillState
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.prefix_state import state_type
from policies.serving import ServingState
from sim.cluster import Cluster
from sim.link import Link, LinkAtWork
from sim.pool_engine import EncodeEngine, PoolEngine, PoolRecorder
from sim.pool_result import PooledRun
from sim.pools import KINDS
from sim.served import ServedRequest
from sim.turns import Turns
from workloads.models import MODELS
from workloads.request import Request

MODEL = MODELS["qwen3-vl-8b"]


class Checking(PoolEngine):
    """Drafts twice, and looks for every request before each draft."""

    cluster: Cluster

    def draft(self, start: int) -> IterationPlan:
        check(self.state)
        before = fingerprint(self.state)
        plan, again = super().draft(start), super().draft(start)
        assert content(plan) == content(again), "the same draft twice gives two plans"
        assert fingerprint(self.state) == before, "drafting changed the state"
        self._check_places()
        return plan

    def _check_places(self) -> None:
        """Under way: in one engine, or on the way between two; nothing is kept for anybody else."""
        engines: list[Any] = self.cluster.engines
        there = [request for engine in engines for request in (*everyone(engine.state), *engine._arrived)]
        going = [request for request in self.recorder.under_way if request.parcel is not None]
        prepared = [request for request in self.recorder.under_way if request.prepared >= 0]
        found = [request for request in (*there, *going) if not request.status]
        assert sorted(found, key=id) == sorted(prepared, key=id), "a request is lost, or in two places"
        for engine in engines:
            state, landed = engine.state, [parcel.request for parcel in engine._landed]
            away = {*getattr(state, "away", {}), *getattr(state.decodes, "away", {})}
            assert all(r.parcel is not None or r.status or r in engine._delivered for r in away)
            assert all(r.parcel is not None or r.status or r in landed for r in getattr(state, "coming", ()))


class CheckedPoolEngine(Checking):
    pass


class CheckedEncodeEngine(Checking, EncodeEngine):
    pass


class Tables(PooledRun):
    """The tables of a run that had no scenario."""

    _warms_up = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._recorders = [engine.recorder for engine in cluster.engines]
        self.engines = tuple(engine.name for engine in cluster.engines)
        self.scenario = Kept  # type: ignore[assignment]


class Kept:
    name = "small"

    class measure:  # noqa: N801
        iterations = True


@dataclass
class Pooled:
    """A run that is over."""

    cluster: Cluster
    requests: dict[int, ServedRequest]
    verdict: str
    blockers: dict[int, str]
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(self.cluster)
        self.tables.verdict, self.tables.blockers = self.verdict, self.blockers

    @cached_property
    def table(self) -> pd.DataFrame:
        return self.tables.requests.set_index("request_id")

    @property
    def iterations(self) -> pd.DataFrame:
        return self.tables.iterations

    @property
    def itl(self) -> Any:
        return self.tables.itl_sample

    @property
    def status(self) -> dict[int, str]:
        return {id: r.status for id, r in self.requests.items()}


@dataclass
class Shape:
    """How many engines there are of each kind; 0 of encode or decode: the prefill engines do it."""

    encode: int = 1
    prefill: int = 1
    decode: int = 0
    gigabytes_per_second: float = 1.0
    latency_ms: float = 0.0
    router: str = "round_robin"
    limits: dict[str, Limits] = field(default_factory=dict)  # of a kind, in place of the load's


def serve_pools(
    load: Load,
    policy: str,
    shape: Shape,
    *,
    fast_path: bool = True,
    encode_token: int = 13_003,
    until: int | None = None,
) -> Pooled:
    """As `servers.serve`, on several engines."""
    env = Turns()
    under_way: dict[ServedRequest, None] = {}
    engines: dict[Any, list[PoolEngine]] = {}
    for kind in KINDS:
        for number in range(getattr(shape, kind)):
            state = _state(kind, shape, load.limits)
            costs = {"host": 100_000, "compute": 0} if kind == "encode" else {"prefill_token": 7_001}
            backend = SmallBackend(**costs, encode_token=encode_token, most_iterations=2 * MANY_ITERATIONS)
            recorder = PoolRecorder(under_way, keep_iterations=True, progress=None)
            engine_type = CheckedEncodeEngine if kind == "encode" else CheckedPoolEngine
            rank = sum(map(len, engines.values()))
            parts = (env, state, POLICIES[policy], backend, recorder)
            engine = engine_type(f"{kind}-{number}", rank, *parts, fast_path=fast_path)
            engines.setdefault(kind, []).append(engine)
    link = LinkAtWork(env, Link(gigabytes_per_second=shape.gigabytes_per_second, latency_ms=shape.latency_ms))
    cluster = Cluster(engines, link, MODEL, router=shape.router)
    for engine in cluster.engines:
        engine.cluster = cluster  # type: ignore[attr-defined]
    served: dict[int, ServedRequest] = {}
    for asked in load.requests:
        env.process(_send(env, cluster, under_way, asked, served))
    for id, time in load.cancels.items():
        env.process(_cancel(env, cluster, id, time, served))
    env.run(until)
    named = cluster.blockers()
    running = set(under_way) - set(named)
    assert not running or until, "somebody waits and nobody can say what for"
    for r in list(under_way):
        cluster.leave_unfinished(r, "stalled", named.get(r, "is running"))
    blocked = {r.id: reason for r, reason in named.items()}
    return Pooled(cluster, served, "stalled" if blocked else "finished", blocked)


def _state(kind: str, shape: Shape, common: Limits) -> CheckedState:
    limits = shape.limits.get(kind, common)
    if kind == "encode":
        return checked_type(EncodeState)(limits.model_copy(update={"num_kv_blocks": 1}))
    if kind == "decode":
        return checked_type(DecodeState)(limits.model_copy(update={"capacity": "no_evict"}))
    types: dict[tuple[bool, bool], type[ServingState]] = {(False, False): ServingState, (False, True): PrefillState}
    types |= {(True, False): EncodedState, (True, True): EncodedPrefillState}
    return checked_type(state_type(types[shape.encode > 0, shape.decode > 0], limits))(limits)


def _send(
    env: Turns, cluster: Cluster, under_way: Any, asked: Request, served: dict[int, ServedRequest]
) -> Generator[Any, None, None]:
    yield env.timeout(asked.arrival)
    served[asked.id] = ServedRequest(asked)
    under_way[served[asked.id]] = None
    cluster.deliver(served[asked.id])


def _cancel(
    env: Turns, cluster: Cluster, id: int, time: int, served: dict[int, ServedRequest]
) -> Generator[Any, None, None]:
    yield env.timeout(time)
    if id in served:
        cluster.cancel(served[id], "cancelled")
