"""The fast path and the stepwise loop tell the same story to the last byte; so do two runs with one seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from acting import EVERY, POLICIES
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rules import Sized, limits, request
from servers import Served, SmallBackend, serve
from small_loads import Load, loads, resolved

from sim import Run, Scenario, run

RANDOM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
every_policy = pytest.mark.parametrize("policy", POLICIES)

LOADS: dict[str, dict[str, Any]] = {
    "poisson": {"kind": "poisson", "rate": 30},
    "gamma": {"kind": "gamma", "rate": 30, "burstiness": 0.2},
    "weibull": {"kind": "weibull", "rate": 30, "shape": 0.5},
    "constant": {"kind": "constant", "rate": 40},
    "at_once": {"kind": "at_once"},
    "ramp": {"kind": "ramp", "start_rate": 1, "end_rate": 80, "duration": 2},
    "piecewise": {
        "kind": "piecewise",
        "segments": [{"duration": 0.5, "rate": 60}, {"duration": 0.5, "rate": 0}],
        "repeat": True,
    },
    "closed": {"kind": "concurrency", "users": 6, "think_time": {"mean": 0.05}},
    "closed, no thinking": {"kind": "concurrency", "users": 6, "think_time": 0},
}


def scenario(policy: str, arrivals: str, seed: int = 1, /, **sections: Any) -> Scenario:
    """Small, with every budget binding: 24 requests, some with images of their own and some with shared ones."""
    engine = {
        "max_num_seqs": 6,
        "max_num_batched_tokens": 300,
        "num_kv_blocks": 130,
        "encoder_max_num_items": 2,
        "encoder_max_num_tokens": 2048,
        "encoder_cache_rows": 900,
    }
    size = {"kind": "choice", "values": ["256x256", "512x384", "512x512"]}
    images = [{"count": {"kind": "uniform", "min": 0, "max": 2}, "size": size}]
    shared = {"count": {"kind": "uniform", "min": 0, "max": 1}, "size": "512x512", "pool": {"size": 2}}
    content = {
        "seed": seed,
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": policy},
        "workload": {
            "kind": "synthetic",
            "num_requests": 24,
            "arrivals": LOADS[arrivals],
            "text_tokens": {"kind": "uniform", "min": 1, "max": 200},
            "output_tokens": {"kind": "uniform", "min": 1, "max": 80},
            "images": [*images, shared],
        },
        "front_end": {"workers": 2, "ms_per_megapixel": 40},
        "engine": engine | sections.pop("engine", {}),
        **sections,
    }
    return Scenario.model_validate(content)


def written(frame: pd.DataFrame) -> dict[str, Any]:
    """A table to the last bit."""
    return {name: (str(frame[name].dtype), _bytes(frame[name].to_numpy())) for name in frame}


def _bytes(values: np.ndarray[Any, Any]) -> Any:
    return values.tolist() if values.dtype == object else values.tobytes()


def told(run: Run | Served) -> tuple[Any, ...]:
    requests = run.table.reset_index() if isinstance(run, Served) else run.requests
    sample = run.itl if isinstance(run, Served) else run.itl_sample
    gaps = np.sort(np.repeat(sample.values, sample.weights)).tobytes()
    return written(requests), written(run.iterations), gaps, run.verdict, run.blockers


def assert_same(quick: Any, slow: Any) -> None:
    for one, other in zip(told(quick), told(slow), strict=True):
        if isinstance(one, dict):
            assert [name for name in one if one[name] != other[name]] == []
        assert one == other


def assert_paths_agree(given: Scenario) -> Run:
    quick = run(given)
    slow = run(given.model_copy(update={"simulation": given.simulation.model_copy(update={"fast_path": False})}))
    assert_same(quick, slow)
    assert quick.summary == slow.summary
    assert quick.decisions == slow.decisions
    return quick


@every_policy
@pytest.mark.parametrize("arrivals", LOADS)
def test_paths_agree_on_every_load(policy: str, arrivals: str) -> None:
    assert_paths_agree(scenario(policy, arrivals))


@every_policy
@pytest.mark.parametrize("arrivals", ["gamma", "closed"])
def test_paths_agree_where_clients_give_up(policy: str, arrivals: str) -> None:
    quick = assert_paths_agree(scenario(policy, arrivals, clients={"timeout": 0.35}))
    assert {"cancelled", "finished"} <= set(quick.requests["status"])


@every_policy
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_paths_agree_where_requests_are_preempted(policy: str, block_size: int) -> None:
    cautious = policy == "sglang"  # it leaves running answers room, and else admits only who has blocks to completion
    options, tokens = ({"new_token_ratio": 0}, 850) if cautious else ({}, 1200)
    engine = {"capacity": "max_utilization", "block_size": block_size, "num_kv_blocks": tokens // block_size}
    quick = assert_paths_agree(scenario(policy, "gamma", engine=engine, policy={"kind": policy, **options}))
    assert quick.requests["num_preemptions"].sum() > 0


@every_policy
@pytest.mark.parametrize("changes", [{"chunked_prefill": False}, {"release": "prompt_end"}, {"admission_gate": False}])
def test_paths_agree_under_every_option(policy: str, changes: dict[str, Any]) -> None:
    assert_paths_agree(scenario(policy, "poisson", engine={"max_num_batched_tokens": 1500, **changes}))


@every_policy
@pytest.mark.parametrize("arrivals", ["gamma", "closed", "closed, no thinking"])
def test_paths_agree_where_batches_fail(policy: str, arrivals: str) -> None:
    """A pool that leaves no memory for the larger batches; users in a closed loop send anew when theirs has failed."""
    engine = {"encoder_max_num_items": 4, "num_kv_blocks": 56_165, "encoder_max_num_tokens": 4096}
    quick = assert_paths_agree(scenario(policy, arrivals, engine=engine))
    assert {"failed", "finished"} <= set(quick.requests["status"])
    assert quick.requests["arrival"].is_monotonic_increasing


@settings(RANDOM, phases=[Phase.generate])  # a failure is not made smaller, which takes minutes
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    arrivals=st.sampled_from(sorted(LOADS)),
    seed=st.integers(0, 10_000),
    capacity=st.sampled_from(["no_evict", "max_utilization"]),
    block_size=st.integers(1, 20),
    tokens=st.integers(6, 400),
    timeout=st.none() | st.floats(0.05, 2),
)
def test_paths_agree_on_random_scenarios(
    policy: str, arrivals: str, seed: int, capacity: str, block_size: int, tokens: int, timeout: float | None
) -> None:
    engine = {"capacity": capacity, "block_size": block_size, "num_kv_blocks": 1300 // block_size}
    engine |= {"max_num_batched_tokens": tokens}
    assert_paths_agree(scenario(policy, arrivals, seed, engine=engine, clients={"timeout": timeout}))


@pytest.mark.parametrize("policy", EVERY)
@settings(RANDOM, max_examples=60)
@given(load=loads())
def test_paths_agree_on_random_small_loads(policy: str, load: Load) -> None:
    """Tiny blocks, tiny budgets, cancellations between any two iterations, stalls."""
    load = resolved(load, policy)
    quick, slow = (
        serve(load.requests, policy, load.limits, cancels=load.cancels, fast_path=fast_path)
        for fast_path in (True, False)
    )
    assert_same(quick, slow)


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line"])
def test_paths_agree_while_blocks_run_out_for_someone_who_waits(policy: str) -> None:
    """Request 2 waits for rows and has blocks at first; 0's answer takes them, so what it waits for changes."""
    shared = Sized(4, 4, "shared")
    asked = [
        request(0, output=4),
        request(1, [shared]),
        request(2, [Sized(1, 2), Sized(1, 4)]),
        request(3, [shared]),
    ]
    tight = limits(capacity="max_utilization", block_size=1, num_kv_blocks=10, encoder_cache_rows=6)
    quick, slow = (
        serve(asked, policy, tight, fast_path=fast_path, backend=SmallBackend(prefill_token=7_001))
        for fast_path in (True, False)
    )
    assert_same(quick, slow)


@every_policy
def test_the_fast_path_is_taken(policy: str) -> None:
    """Else all of this would compare the loop with itself."""
    backends = [SmallBackend(), SmallBackend()]
    asked = [request(id, [Sized(2, 2)], output=200) for id in range(3)]
    for backend, fast_path in zip(backends, (True, False), strict=True):
        serve(asked, policy, limits(), backend=backend, fast_path=fast_path)
    quick, slow = (len(backend.steps) for backend in backends)
    assert slow == 200 and quick <= 3


@every_policy
def test_same_seed_same_bytes_and_another_seed_others(policy: str) -> None:
    one, again, other = (run(scenario(policy, "gamma", seed)) for seed in (7, 7, 8))
    assert told(one) == told(again) and one.decisions == again.decisions and one.summary == again.summary
    assert told(one)[0]["arrival"] != told(other)[0]["arrival"]
    assert told(one)[1] != told(other)[1]


def test_the_loads_bind() -> None:
    """With these budgets the policies decide differently, so the comparisons above cover their differences."""
    digests = {run(scenario(policy, "gamma")).decisions for policy in POLICIES}
    assert len(digests) >= 4
