"""Several engines, a link and one front end, on one SimPy environment."""

from __future__ import annotations

import simpy

from policies.encode_only import EncodeState
from policies.handover import DecodeState, EncodedPrefillState, EncodedState, PrefillState
from policies.request_state import RequestState
from policies.serving import ServingState
from sim.cluster import Cluster
from sim.link import LinkAtWork
from sim.pool_engine import EncodeEngine, PoolEngine, PoolRecorder
from sim.pools import Kind, Pool, Pools
from sim.profiles import load_profile
from sim.served import ServedRequest
from sim.simulated import SimulatedBackend
from sim.turns import Turns
from sim.uncertain import engine_backend
from sim.world import World


class PooledWorld(World):
    """Every engine runs the scenario's policy on a state, a device and limits of its own."""

    cluster: Cluster

    @property
    def source(self) -> str:
        profiles = dict.fromkeys(pool.profile or self.scenario.profile for _, pool in self._pools.kinds())
        told = [f"{name}, {load_profile(name).label}" for name in profiles]
        return f"simulated with the costs of {'; '.join(told)}"

    @property
    def _pools(self) -> Pools:
        assert self.scenario.pools is not None
        return self.scenario.pools

    def blockers(self) -> dict[RequestState, str]:
        return self.cluster.blockers()

    def leave_unfinished(self, request: ServedRequest, status: str, reason: str) -> None:
        self.cluster.leave_unfinished(request, status, reason)

    def spans(self) -> dict[str, list[tuple[int, int]]]:
        link = self.cluster.link
        return {} if link is None else {"link_busy_fraction": link.spans}

    def _environment(self) -> simpy.Environment:
        return Turns()

    def _server(self) -> Cluster:
        self._under_way: dict[ServedRequest, None] = {}
        self.backends: list[SimulatedBackend] = []
        engines: dict[Kind, list[PoolEngine]] = {}
        rank = 0
        for kind, pool in self._pools.kinds():
            engines[kind] = [self._engine(kind, pool, number, rank + number) for number in range(pool.engines)]
            rank += pool.engines
        link = LinkAtWork(self.env, self._pools.link) if self._pools.link else None
        self.cluster = Cluster(engines, link, self.scenario.model, router=self._pools.router)
        first, self.backend = self.cluster.engines[0], self.backends[0]
        self.recorder, self.state, self.engine = first.recorder, first.state, first
        return self.cluster

    def _engine(self, kind: Kind, pool: Pool, number: int, rank: int) -> PoolEngine:
        scenario = self.scenario
        state = self._state(kind, pool)
        profile = load_profile(pool.profile) if pool.profile else self.profile
        keep, progress = scenario.measure.iterations, self._progress if self.progress else None
        recorder = PoolRecorder(self._under_way, keep_iterations=keep, progress=progress)
        self.backends.append(backend := engine_backend(scenario, profile, state, recorder, rank))
        self.priced.append((pool.profile or scenario.profile, backend.beyond, recorder.iterations))
        engine_type = EncodeEngine if kind == "encode" else PoolEngine
        parts = (self.env, state, scenario.policy, backend, recorder)
        return engine_type(f"{kind}-{number}", rank, *parts, **self._engine_options())

    def _state(self, kind: Kind, pool: Pool) -> ServingState:
        limits = pool.engine
        assert limits is not None, "resolve the scenario first"
        if kind == "encode":
            return EncodeState(limits.model_copy(update={"num_kv_blocks": 1}))
        if kind == "decode":
            return DecodeState(limits)
        types: dict[tuple[bool, bool], type[ServingState]] = {(False, False): ServingState, (False, True): PrefillState}
        types |= {(True, False): EncodedState, (True, True): EncodedPrefillState}
        return types[self._pools.encode is not None, self._pools.decode is not None](limits)

    def _progress(self, _: int) -> None:
        """Of all engines together."""
        assert self.progress is not None
        self.progress(sum(len(engine.recorder.requests) for engine in self.cluster.engines))
