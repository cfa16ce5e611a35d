"""A live run's twin decides the same again, to the last bit; whatever was altered in its records is found and named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from noisy_runs import LOADS, live_run, small

from policies import POLICIES
from sim import Run, Scenario
from sim.compare_exact import Exact, same_run
from sim.plan_log import PlanLine
from sim.recorded import RecordedLive
from sim.twin import twin
from sim.world import resolve

KINDS = tuple(policy.model_fields["kind"].default for policy in POLICIES)
RANDOM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
every_policy = pytest.mark.parametrize("policy", KINDS)


def recorded(scenario: Scenario, run: Run, texts: list[str]) -> RecordedLive:
    about = {"name": run.name, "verdict": run.verdict, "num_iterations": run.num_iterations}
    iterations = run.iterations if scenario.measure.iterations else None
    plans = [PlanLine.model_validate_json(text) for text in texts]
    return RecordedLive(None, resolve(scenario), about, run.requests, iterations, {"clock": "wall"}, texts, plans)  # type: ignore[arg-type]


def check(scenario: Scenario, run: Run, texts: list[str]) -> Exact:
    live = recorded(scenario, run, texts)
    return same_run(twin(live.resolved, live.plans), live, "twin")


def twin_of(scenario: Scenario, **how: Any) -> Exact:
    return check(scenario, *live_run(scenario, **how))


@every_policy
@pytest.mark.parametrize("arrivals", LOADS)
def test_twins_are_identical(policy: str, arrivals: str) -> None:
    exact = twin_of(small(policy, arrivals), cv=0.3)
    assert exact.identical, exact
    assert str(exact).startswith("identical (") and exact.num_requests == 16 and not exact.partial


@pytest.mark.parametrize("policy", ["fcfs", "sglang"])
def test_twins_behind_an_event_loop_are_identical(policy: str) -> None:
    """What is exposed in the engine's loop is no part of the recorded times: the twin adds it again."""
    front_end = {"ms_per_megapixel": 200, "event_loop": True, "exposed": {"ms_per_megapixel": 30}}
    exact = twin_of(small(policy, "closed", front_end=front_end), cv=0.3)
    assert exact.identical, exact


@RANDOM
@given(
    policy=st.sampled_from(KINDS),
    arrivals=st.sampled_from(sorted(LOADS)),
    seed=st.integers(0, 10_000),
    capacity=st.sampled_from(["no_evict", "max_utilization"]),
    block_size=st.integers(1, 20),
    tokens=st.integers(6, 400),
    timeout=st.none() | st.floats(0.05, 2),
    scale=st.floats(0.1, 10),
)
def test_twins_of_random_runs_are_identical_and_altered_lines_are_found(
    policy: str, arrivals: str, seed: int, capacity: str, block_size: int, tokens: int, timeout: float | None,
    scale: float,
) -> None:  # fmt: skip
    engine = {"capacity": capacity, "block_size": block_size, "num_kv_blocks": 1300 // block_size}
    engine |= {"max_num_batched_tokens": tokens}
    scenario = small(policy, arrivals, seed, engine=engine, clients={"timeout": timeout})
    run, texts = live_run(scenario, seed=seed, cv=0.5, scale=scale)
    exact = check(scenario, run, texts)
    assert exact.identical, exact
    where = seed % len(texts)
    line = json.loads(texts[where])
    line["context_tokens"] = line.get("context_tokens", 0) + 1
    altered = check(scenario, run, [*texts[:where], json.dumps(line, separators=(",", ":")), *texts[where + 1 :]])
    assert altered.difference is not None and altered.difference.iteration == where
    assert str(altered.difference).startswith(f"iteration {where}: context_tokens: twin ")


@pytest.fixture(scope="module")
def served() -> tuple[Scenario, Run, list[str]]:
    scenario = small()
    return scenario, *live_run(scenario)


def altered(texts: list[str], where: int, **fields: Any) -> list[str]:
    changed = PlanLine.model_validate_json(texts[where]).model_copy(update=fields)
    return [*texts[:where], changed.text(), *texts[where + 1 :]]


@pytest.mark.parametrize("where", [0, 3, 30])
@pytest.mark.parametrize("field", ["admitted", "preempted", "attached", "charged", "encode", "prefill", "decode"])
def test_every_altered_field_of_a_plan_is_named(served: Any, where: int, field: str) -> None:
    scenario, run, texts = served
    strange: dict[str, Any] = {"encode": [(99, 0, (1, 2, 2))], "prefill": [(99, 1, 0)]}
    strange |= {"attached": [(99, 0)], "charged": [(99, 0)]}
    difference = check(scenario, run, altered(texts, where, **{field: strange.get(field, [99])})).difference
    assert difference is not None and difference.iteration == where
    assert f"{field}: twin " in difference.what and "99" in difference.what


def test_an_altered_time_is_found_in_the_table_at_its_iteration(served: Any) -> None:
    scenario, run, texts = served
    host, encode, compute = PlanLine.model_validate_json(texts[12]).elapsed_ns
    difference = check(scenario, run, altered(texts, 12, elapsed_ns=(host, encode, compute + 1))).difference
    assert difference is not None and difference.iteration == 12
    assert "end: twin " in difference.what and "compute: twin " in difference.what


def test_someone_failed_who_did_not_run_is_a_difference(served: Any) -> None:
    scenario, run, texts = served
    difference = check(scenario, run, altered(texts, 5, failed=[99], reason="x")).difference
    assert str(difference) == "iteration 5: failed: [99] in the live run, whom the iteration does not run"


def test_an_altered_table_is_found_at_its_row(served: Any) -> None:
    scenario, run, texts = served
    live = recorded(scenario, run, texts)
    again = twin(live.resolved, live.plans)
    iterations, requests = run.iterations.copy(), run.requests.copy()
    iterations.loc[7, "kv_blocks_used"] += 1
    found = same_run(again, replace(live, iterations=iterations), "twin").difference
    assert found is not None and str(found).startswith("iteration 7: kv_blocks_used: twin ")
    requests.loc[requests["request_id"] == 4, "num_encodes"] += 1
    found = same_run(again, replace(live, requests=requests), "twin").difference
    assert found is not None and str(found).startswith("request 4: num_encodes: twin ")


def test_plans_that_run_out_and_plans_that_are_too_many_are_differences(served: Any) -> None:
    scenario, run, texts = served
    size = len(texts)
    short = check(scenario, run, texts[:-2])
    assert str(short.difference) == f"iteration {size - 2}: live has no more plans, the twin goes on"
    extra = PlanLine.model_validate_json(texts[-1]).model_copy(update={"iteration": size}).text()
    long = check(scenario, run, [*texts, extra])
    assert str(long.difference) == f"iteration {size}: twin has {size}, live {size + 1}"


@every_policy
@pytest.mark.parametrize("stop_at", [0, 1, 20, 60])
def test_an_interrupted_run_is_compared_as_far_as_it_went(policy: str, stop_at: int) -> None:
    scenario = small(policy)
    run, texts = live_run(scenario, stop_at=stop_at)
    assert run.partial and len(texts) == stop_at
    exact = check(scenario, run, texts)
    assert exact.identical and exact.partial, exact
    assert exact.num_requests == (run.requests["status"] != "unfinished").sum() < 16
    if stop_at > 1:
        found = check(scenario, run, altered(texts, stop_at - 1, context_tokens=12345))
        assert found.difference is not None and found.difference.iteration == stop_at - 1


def test_the_last_line_of_an_interrupted_run_may_have_no_row_yet() -> None:
    """The signal may come while the device's answer is on its way to the tables."""
    scenario = small()
    run, texts = live_run(scenario, stop_at=40)
    live = recorded(scenario, run, texts)
    fewer = replace(live, iterations=run.iterations[:-1])
    assert same_run(twin(live.resolved, live.plans), fewer, "twin").identical


@every_policy
def test_twins_where_batches_fail_or_end_the_run(policy: str) -> None:
    tight = {"encoder_max_num_items": 4, "num_kv_blocks": 56_175, "encoder_max_num_tokens": 4096}
    for simulation in ({}, {"out_of_memory": "end_run"}):
        scenario = small(policy, engine=tight, simulation=simulation)
        run, texts = live_run(scenario)
        assert run.verdict == ("out of memory" if simulation else "finished") and run.allocation_failures
        live = recorded(scenario, run, texts)
        again = twin(live.resolved, live.plans)
        assert same_run(again, live, "twin").identical
        assert again.run.allocation_failures == run.allocation_failures


def test_a_twin_without_an_iterations_table() -> None:
    scenario = small(measure={"iterations": False})
    run, texts = live_run(scenario)
    assert check(scenario, run, texts).identical
    host, encode, compute = PlanLine.model_validate_json(texts[-1]).elapsed_ns
    difference = check(
        scenario, run, altered(texts, -1 % len(texts), elapsed_ns=(host, encode, compute + 1))
    ).difference
    assert difference is not None and difference.place.startswith("request ")
