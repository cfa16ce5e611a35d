"""Live runs without a device: a simulated world whose times are perturbed, written as a live run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import simpy

from policies.plan import IterationPlan
from sim import Run, Scenario
from sim.backend import AccountingBackend, Outcome
from sim.live_output import write_live_run
from sim.output import write_run
from sim.plan_log import PlanLog
from sim.run import run, serve
from sim.world import Resolved, World, resolve


class NoisyBackend:
    """Its iterations take what the inner backend's do, times something near `scale`; seeded."""

    def __init__(self, inner: AccountingBackend, seed: int, cv: float = 0.1, scale: float = 1.0) -> None:
        self.inner = inner
        self.rng = np.random.default_rng(seed)
        self.cv = cv
        self.scale = scale
        self.stop_at = -1  # iteration at which somebody interrupts
        self.num_launched = 0

    @property
    def allocation_failures(self) -> int:
        return self.inner.allocation_failures

    @property
    def peak_encoder_bytes(self) -> int:
        return self.inner.peak_encoder_bytes

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Any:
        if self.num_launched == self.stop_at:
            raise KeyboardInterrupt
        self.num_launched += 1
        return self.inner.launch(plan, max_iterations, horizon)

    def wait(self, handle: Any) -> Outcome:
        outcome = self.inner.wait(handle)
        factors = self.scale * np.exp(self.rng.normal(0, self.cv, 3)) if self.cv else np.full(3, self.scale)
        parts = (outcome.host, outcome.encode, outcome.compute)
        host, encode, compute = (round(part * factor) for part, factor in zip(parts, factors, strict=True))
        return outcome._replace(host=host, encode=encode, compute=compute, total=host + encode + compute)


class NoisyWorld(World):
    """What a live world is, but for the device."""

    stepwise = True

    def __init__(self, checked: Resolved, seed: int, **noise: float) -> None:
        self.texts: list[str] = []
        self._noise = {"seed": seed, **noise}
        super().__init__(checked.scenario, checked.profile)

    def _environment(self) -> simpy.Environment:
        return simpy.Environment(0)

    def _backend(self) -> AccountingBackend:
        self.noisy = NoisyBackend(super()._backend(), **self._noise)
        return PlanLog(self.noisy, self.texts.append)


def live_run(scenario: Scenario, seed: int = 1, stop_at: int = -1, **noise: float) -> tuple[Run, list[str]]:
    """A run with perturbed times, and its plan log."""
    checked = resolve(scenario)
    world = NoisyWorld(checked, seed, **noise)
    world.noisy.stop_at = stop_at
    return serve(world, checked.notes), world.texts


def write_live(scenario: Scenario, folder: Path, clock: str = "wall", **how: Any) -> tuple[Run, list[str]]:
    """The same as a folder; by the cost model's clock nothing is perturbed."""
    noise = {"cv": 0.0} if clock == "model" else {}
    served, texts = live_run(scenario, **(noise | how))
    tokens = pa.table({"request_id": served.requests["request_id"].to_numpy(), "tokens": [[1]] * len(served.requests)})
    write_live_run(served, "live", folder, plans=texts, tokens=tokens, about={"clock": clock, "device": "none"})
    return served, texts


def write_simulated(scenario: Scenario, folder: Path) -> Run:
    simulated = run(scenario)
    write_run(simulated, "simulated", folder)
    return simulated


LOADS: dict[str, dict[str, Any]] = {
    "gamma": {"kind": "gamma", "rate": 30, "burstiness": 0.2},
    "at_once": {"kind": "at_once"},
    "closed": {"kind": "concurrency", "users": 5, "think_time": {"mean": 0.05}},
}


def small(policy: str = "head_of_line", arrivals: str = "gamma", seed: int = 1, **sections: Any) -> Scenario:
    """16 requests, some with images of their own and some with shared ones, on a server where every budget binds."""
    engine = {
        "max_num_seqs": 6,
        "max_num_batched_tokens": 300,
        "num_kv_blocks": 130,
        "encoder_max_num_items": 2,
        "encoder_max_num_tokens": 2048,
        "encoder_cache_rows": 900,
    }
    size = {"kind": "choice", "values": ["256x256", "512x384", "512x512"]}
    own = {"count": {"kind": "uniform", "min": 0, "max": 2}, "size": size}
    shared = {"count": {"kind": "uniform", "min": 0, "max": 1}, "size": "512x512", "pool": {"size": 2}}
    content = {
        "name": "small",
        "seed": seed,
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": policy},
        "workload": {
            "kind": "synthetic",
            "num_requests": 16,
            "arrivals": LOADS[arrivals],
            "text_tokens": {"kind": "uniform", "min": 1, "max": 200},
            "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
            "images": [own, shared],
        },
        "front_end": {"workers": 2, "ms_per_megapixel": 40},
        "engine": engine | sections.pop("engine", {}),
        **sections,
    }
    return Scenario.model_validate(content)
