"""What queueing theory says about any server must be true of this one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from acting import ALIKE, IN_ORDER, POLICIES, VLLM

from sim import Run, Scenario, run

every_policy = pytest.mark.parametrize("policy", POLICIES)


def served(arrivals: dict[str, Any], count: int, seed: int = 1, **sections: Any) -> Run:
    """Every request alike: 500 tokens in, 20 out."""
    workload = {"kind": "synthetic", "num_requests": count, "arrivals": arrivals, "text_tokens": 500}
    content = {
        "seed": seed,
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": sections.pop("policy", "fcfs")},
        "workload": workload | {"output_tokens": 20} | sections.pop("workload", {}),
        **sections,
    }
    return run(Scenario.model_validate(content))


IMAGES = {"images": {"count": {"kind": "uniform", "min": 0, "max": 2}, "size": "512x512"}}
TIGHT = {
    "max_num_seqs": 6,
    "max_num_batched_tokens": 600,
    "num_kv_blocks": 220,
    "encoder_max_num_tokens": 2048,
    "encoder_cache_rows": 900,
}


def tight(policy: str, **changes: Any) -> dict[str, Any]:
    """Every budget binds; but where blocks run out, encoded requests of `hf_rows` stall one another."""
    return TIGHT | ({"num_kv_blocks": 400} if policy == "hf_rows" else {}) | changes


def nanoseconds(seconds: pd.Series) -> np.ndarray[Any, Any]:
    return np.rint(seconds.to_numpy() * 1e9).astype(np.int64)


def close(samples: list[float], expected: float) -> None:
    """The mean of independent runs, within four of its own standard errors; those are small enough to mean much."""
    error = np.std(samples, ddof=1) / np.sqrt(len(samples))
    assert error < 0.06 * expected
    assert abs(np.mean(samples) - expected) < 4 * error


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_seat_is_an_m_d_1_queue(load: float) -> None:
    """Pollaczek and Khinchin: Poisson arrivals, one server, the same service for all: they wait load/(2(1-load))."""
    one = {"max_num_seqs": 1}
    alone = served({"kind": "at_once"}, 1, engine=one).requests.iloc[0]
    service = float(alone["e2el"])
    poisson = {"kind": "poisson", "rate": load / service}
    runs = [served(poisson, 2500, seed, engine=one, measure={"iterations": False}) for seed in range(8)]
    waits = [float(r.requests["queue_wait"].mean()) for r in runs]
    close(waits, load / (2 * (1 - load)) * service)
    inside = runs[0].requests
    assert np.ptp(nanoseconds(inside["finish"] - inside["admitted"])) <= 2  # nothing else delays anybody


def test_one_worker_is_an_m_d_1_queue_too() -> None:
    """The front end: 40 ms a request, busy 60 % of the time."""
    poisson, front_end = {"kind": "poisson", "rate": 15}, {"workers": 1, "ms_per_request": 40}
    brief = {"text_tokens": 1, "output_tokens": 1}
    runs = [served(poisson, 2500, seed, workload=brief, front_end=front_end) for seed in range(8)]
    close([float(r.requests["preparation"].mean()) for r in runs], 0.04 * (1 + 0.6 / 0.8))


@every_policy
@pytest.mark.parametrize("capacity", ["no_evict", "max_utilization"])
def test_littles_law_holds_exactly_for_the_running(policy: str, capacity: str) -> None:
    """Number running x time = requests x time running; one side from the iterations, one from the requests."""
    r = served(
        {"kind": "poisson", "rate": 30}, 80, policy=policy, workload=IMAGES, engine=tight(policy, capacity=capacity)
    )
    assert r.verdict == "finished"
    table, iterations = r.requests, r.iterations
    inside = (nanoseconds(table["finish"]) - nanoseconds(table["admitted"])).sum()
    length = nanoseconds(iterations["end"]) - nanoseconds(iterations["start"])
    assert (length * iterations["num_running"].to_numpy()).sum() == inside


@every_policy
def test_littles_law_holds_for_the_system(policy: str) -> None:
    """`concurrency` is rate x mean latency; the mean number in the system is counted here, event by event."""
    r = served(
        {"kind": "gamma", "rate": 20, "burstiness": 0.3}, 100, policy=policy, workload=IMAGES, engine=tight(policy)
    )
    table = r.requests
    times = np.concatenate([nanoseconds(table["arrival"]), nanoseconds(table["finish"])])
    steps = np.repeat([1, -1], len(table))
    order = np.argsort(times, kind="stable")
    inside = np.cumsum(steps[order])[:-1]
    area = (inside * np.diff(times[order])).sum()
    assert area == (nanoseconds(table["finish"]) - nanoseconds(table["arrival"])).sum()
    window = np.ptp(times) / 1e9
    assert r.summary["duration"] == pytest.approx(window)
    assert r.summary["concurrency"] == pytest.approx(area / 1e9 / window)
    assert r.summary["concurrency"] == pytest.approx(r.summary["request_throughput"] * table["e2el"].mean())


@every_policy
def test_all_work_is_done_and_none_twice(policy: str) -> None:
    r = served({"kind": "poisson", "rate": 30}, 60, policy=policy, workload=IMAGES, engine=tight(policy))
    table, iterations = r.requests, r.iterations
    assert iterations["num_prefill_tokens"].sum() == table["prompt_tokens"].sum()
    assert iterations["num_decodes"].sum() == (table["output_tokens"] - 1).sum() == len(r.itl)
    assert iterations["encoder_tokens"].sum() == table["encoder_tokens"].sum()
    assert iterations["num_items"].sum() == table["num_items"].sum() == r.summary["num_encodes"]


@every_policy
@pytest.mark.parametrize("think_time", [0, 0.05, {"mean": 0.1}])
def test_a_closed_loop_of_n_users_never_has_more_than_n_in_the_system(policy: str, think_time: Any) -> None:
    users = 5
    crowd = {"kind": "concurrency", "users": users, "think_time": think_time}
    r = served(crowd, 40, policy=policy, workload=IMAGES, engine=tight(policy))
    assert len(r.requests) == 40 and (r.requests["status"] == "finished").all()
    assert r.summary["max_concurrent_requests"] == users  # at the start at the latest
    iterations = r.iterations
    assert (iterations["num_running"] + iterations["num_waiting"]).max() <= users
    if think_time == 0:
        assert (np.sort(r.requests["arrival"])[users:] == np.sort(r.requests["finish"])[: 40 - users]).all()


def test_users_who_think_are_gone_that_long() -> None:
    r = served({"kind": "concurrency", "users": 1, "think_time": 0.5}, 5)
    table = r.requests
    pauses = nanoseconds(table["arrival"])[1:] - nanoseconds(table["finish"])[:-1]
    assert pauses.tolist() == [500_000_000] * 4


@every_policy
def test_a_prompt_without_images_costs_no_encoder_time(policy: str) -> None:
    text = served({"kind": "poisson", "rate": 40}, 60, policy=policy)
    assert not text.iterations["encode"].any() and not text.iterations["encoder_tokens"].any()
    assert not text.requests[["encode", "encoder_budget_wait", "reservation_wait"]].any(axis=None)
    assert text.summary["num_encodes"] == 0 and text.peak_encoder_bytes == 0
    mixed = served({"kind": "poisson", "rate": 40}, 60, policy=policy, workload=IMAGES, engine=tight(policy))
    bare = mixed.requests[mixed.requests["num_items"] == 0]
    assert len(bare) and not bare[["encode", "encoder_budget_wait", "reservation_wait"]].any(axis=None)
    quiet = mixed.iterations[mixed.iterations["num_items"] == 0]
    assert len(quiet) and not quiet["encode"].any()


@pytest.mark.parametrize("policies, blocks", [(IN_ORDER, 300), (VLLM, 300), (ALIKE, 3000)])
def test_text_takes_the_same_time_under_every_policy(policies: tuple[str, ...], blocks: int) -> None:
    """Nothing about images can matter where there are none; only vLLM preempts where blocks are short."""
    engine = {"num_kv_blocks": blocks}
    runs = [served({"kind": "poisson", "rate": 60}, 60, policy=policy, engine=engine) for policy in policies]
    assert all(r.requests.equals(runs[0].requests) for r in runs)
    assert len({r.decisions for r in runs}) == 1
