"""vLLM's policies: decision for decision what the real scheduler recorded, and the rules that it follows one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acting import VLLM
from checks import assert_clean
from decide import Case, Server, cases, difference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import MS, Desk, Sized, Step, limits, request
from servers import SmallBackend, serve
from small_loads import Load, loads, resolved
from test_fast_path import assert_same

from policies import Vllm, VllmPriority
from policies.limits import Limits
from policies.vllm_rules import VllmRules
from sim import Scenario
from sim.world import resolve
from workloads.errors import InputError

HERE = Path(__file__).parent
ALL = HERE.parents[1] / "shared" / "cases" / "vllm_decisions.jsonl"  # where it lies next to the clone
OWN = [HERE / "data" / f"{kind}_decisions.jsonl" for kind in VLLM]
FILES = [*OWN, *([ALL] if ALL.exists() else [])]
RECORDED = [
    pytest.param(case, id=f"{path.parent.name}-{path.stem}-{n}") for path in FILES for n, case in enumerate(cases(path))
]


@pytest.mark.parametrize("case", RECORDED)
def test_every_recorded_decision_is_ours(case: Case) -> None:
    assert not difference(case)


def test_the_recordings_cover_what_is_hard() -> None:
    seen = dict.fromkeys(("preempted", "freed", "whole items", "unreserved", "threshold", "unchunked", "shared"), 0)
    for case in cases(FILES[0]):
        given, keys = case.limits, [key for asked in case.requests for _, _, key in asked["items"]]
        seen["preempted"] += any(step["preempted"] for step in case.steps)
        seen["freed"] += any(step["freed"] for step in case.steps)
        seen["whole items"] += given["disable_chunked_mm_input"]
        seen["unreserved"] += not given["reserve_full_isl"]
        seen["threshold"] += given["long_prefill_token_threshold"] > 0
        seen["unchunked"] += not given.get("enable_chunked_prefill", True)
        seen["shared"] += len(set(keys)) < len(keys)
    assert min(seen.values()) >= 5, seen
    assert all(len({asked["priority"] for asked in case.requests}) > 1 for case in cases(OWN[1]))


def decide(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, HERE / "decide.py", path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("field", ["tokens", "encode", "preempted", "freed", "running", "waiting"])
def test_decide_names_the_first_difference(field: str, tmp_path: Path) -> None:
    lines = FILES[0].read_text().splitlines()[:4]
    altered = json.loads(lines[2])
    step = next(step for step in altered["steps"] if step["tokens"])
    step[field] = {"r0": 9} if isinstance(step[field], dict) else 99 if isinstance(step[field], int) else ["r9"]
    (tmp_path / "cases.jsonl").write_text("\n".join([*lines[:2], json.dumps(altered), *lines[3:]]))
    told = decide(tmp_path / "cases.jsonl")
    first, last = told.stdout.splitlines()
    assert told.returncode == 1 and last == "3 of 4 identical"
    assert first.startswith(f"line 3 (seed {altered['seed']}): iteration {step['step']}: {field}: vLLM ")


def test_decide_is_content_where_all_are_identical(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text("\n".join(FILES[0].read_text().splitlines()[:3]))
    told = decide(tmp_path / "cases.jsonl")
    assert (told.returncode, told.stdout) == (0, "3 of 3 identical\n")


def test_recordings_hold_decodes_back() -> None:
    """A decode that gets no token while others do: what the cohort has to let go of and take in again."""
    left_out = 0
    for case in cases(FILES[0]):
        server = Server(case)
        for step in case.steps:
            decoding = [server._names[r.id] for r in server.state.decodes]
            told = server.iterate(step["step"])
            left_out += any(name in told["running"] and name not in told["tokens"] for name in decoding)
    assert left_out >= 5


# Rules


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("policy", VLLM)
def test_an_older_prefill_holds_back_a_younger_decode(policy: str, fast_path: bool) -> None:
    """1 stops before its second image, for which there are no rows yet, so 2 starts; then 1 takes what 0 leaves it."""
    asked = [
        request(0, output=8),
        request(1, [Sized(1, 4), Sized(1, 4)], offsets=[2, 6], text=9),
        request(2, output=5),
    ]
    served = serve(asked, policy, limits(max_num_batched_tokens=8, encoder_cache_rows=4), fast_path=fast_path)
    assert served.steps[:3] == [
        Step(encode=((1, 0),), prefill=((0, 1), (1, 6), (2, 1))),
        Step(encode=((1, 1),), prefill=((1, 7),), decodes=(0,)),
        Step(prefill=((1, 6), (2, 1)), decodes=(0,)),
    ]
    gaps = np.sort(np.repeat(served.itl.values, served.itl.weights))
    assert gaps.tolist() == [MS] * 10 + [2 * MS]
    assert served.table["num_preemptions"].sum() == 0 and served.table["output_tokens"].tolist() == [8, 1, 5]


def test_holding_back_changes_nothing_but_the_place() -> None:
    desk = Desk("vllm", limits(block_size=2))
    first, second = desk.submit(request(0, text=2, output=9), request(1, text=3, output=9))
    for _ in range(3):
        desk.step()
    builder, blocks = desk.builder(), len(second.blocks)
    left = builder.tokens_left, builder.free_blocks
    assert builder.decode() and builder.hold_back(second) and not builder.hold_back(second)
    assert builder.tokens_left == left[0] - 1
    assert not builder.decode_one(first) and builder.decode_one(second) and builder.hold_back(second)
    assert [*builder.plan.held_back] == [second] and not builder.plan.decodes_only
    desk.state.begin(builder.plan)
    assert [*desk.state.contexts] == [second] and [*desk.state.decodes] == [first]
    assert second.remaining == 1 and len(second.blocks) >= blocks and second.num_generated == 3
    desk.state.complete(builder.plan)
    assert desk.step() == Step(prefill=((1, 1),), decodes=(0,))
    assert [*desk.state.decodes] == [first, second] and second.num_generated == 4


def test_a_plan_that_holds_everybody_back_runs_nothing() -> None:
    desk = Desk("vllm", limits())
    requests = desk.submit(request(0, output=9), request(1, output=9))
    desk.step()
    builder = desk.builder()
    left = builder.tokens_left, builder.free_blocks
    assert builder.decode() and all(builder.hold_back(r) for r in requests)
    assert builder.plan.decode is None and not builder.plan
    assert (builder.tokens_left, builder.free_blocks) == left


@pytest.mark.parametrize("reserve, started", [(True, []), (False, [(1, 4)])])
def test_the_whole_prompt_must_fit_or_only_the_chunk(reserve: bool, started: list[tuple[int, int]]) -> None:
    """0 has taken four of ten blocks of one token; 1 needs eight, four of them in its first chunk."""
    desk = Desk(
        Vllm(scheduler_reserve_full_isl=reserve), limits(block_size=1, num_kv_blocks=10, max_num_batched_tokens=8)
    )
    desk.submit(request(0, text=4, output=2), request(1, text=8))
    assert [(r.id, tokens) for r, tokens in desk.draft().prefill] == [(0, 4), *started]


def test_an_item_that_no_chunk_may_split_is_left_to_the_next() -> None:
    asked = [Sized(1, 4), Sized(1, 6)]
    for whole, chunks in ((False, [8, 3]), (True, [4, 7])):
        desk = Desk(Vllm(disable_chunked_mm_input=whole), limits(max_num_batched_tokens=8))
        desk.submit(request(0, asked))
        assert [dict(step.prefill)[0] for step in desk.steps()] == chunks


def test_a_long_prompt_is_cut_short_while_others_are_there() -> None:
    desk = Desk(Vllm(long_prefill_token_threshold=3), limits())
    desk.submit(request(0, text=8), request(1, text=2))
    assert [step.prefill for step in desk.steps()] == [((0, 3), (1, 2)), ((0, 5),)]


def test_the_last_to_come_is_preempted_and_goes_to_the_head_of_the_queue() -> None:
    """Blocks of one token, of which there are nine. 1 starts again before 2, which came while it ran."""
    desk = Desk("vllm", limits(block_size=1, num_kv_blocks=9, max_num_seqs=2))
    desk.submit(request(0, text=3, output=5), request(1, text=3, output=5))
    for _ in range(2):
        desk.step()
    (late,) = desk.submit(request(2, text=1))
    step = desk.step()
    assert step.preempted == (1,) and step.decodes == (0,)
    assert [r.id for r in desk.state.waiting] == [1, 2] and late.order == -1
    assert desk.steps()[-1].preempted == ()


# Priorities


def test_who_matters_more_starts_first() -> None:
    """Lower values first, then earlier arrivals."""
    values = [2, 0, 1, 0]
    asked = [request(0, output=3), *(request(id, arrival=id, priority=value) for id, value in enumerate(values, 1))]
    served = serve(asked, "vllm_priority", limits(max_num_seqs=1))
    assert [id for step in served.steps for id, _ in step.prefill] == [0, 2, 4, 3, 1]


def test_a_victim_gives_back_what_it_was_to_get_in_the_same_iteration() -> None:
    """0 matters least, came first, and takes blocks, tokens and the encoder; 1 needs a block, and 2 gets the rest."""
    policy = VllmPriority(scheduler_reserve_full_isl=False, long_prefill_token_threshold=3)
    tight = limits(block_size=1, num_kv_blocks=12, max_num_seqs=3, max_num_batched_tokens=6, encoder_max_num_tokens=4)
    desk = Desk(policy, tight)
    desk.submit(request(0, [Sized(1, 3), Sized(1, 3), Sized(1, 4)], text=2, priority=5))
    assert desk.step() == Step(encode=((0, 0),), prefill=((0, 3),))
    desk.submit(request(1, output=9), request(2, [Sized(1, 4)], offsets=[2], priority=1))
    assert desk.step() == Step(encode=((0, 1),), prefill=((0, 3), (1, 1), (2, 2)))
    builder = desk.builder()
    policy.schedule(builder)
    desk.state.begin(builder.plan)
    assert Step.of(builder.plan) == Step(encode=((2, 0),), prefill=((2, 3),), decodes=(1,), preempted=(0,))
    assert (builder.encoder_tokens_left, builder.tokens_left) == (0, 2)
    assert builder.free_blocks == len(desk.state.pool.free) == 12 - 2 - 5


def test_another_who_waits_for_a_victims_item_encodes_it_instead() -> None:
    desk = Desk("vllm_priority", limits())
    first, second = desk.submit(request(0, [Sized(1, 4, "k")]), request(1, [Sized(1, 4, "k")]))
    builder = desk.builder()
    for each in (first, second):
        assert builder.encode(each, 0)
    rows, tokens = builder.rows_left, builder.encoder_tokens_left
    assert builder.plan.attached == [(second, 0)]
    assert builder.unschedule(first) and not builder.unschedule(first)
    assert builder.plan.encode == [(second, 0)] and not builder.plan.attached
    assert (builder.rows_left, builder.encoder_tokens_left) == (rows, tokens)
    assert builder.unschedule(second) and not builder.plan.encode
    assert (builder.rows_left, builder.encoder_tokens_left) == (rows + 4, tokens + 4)


# Whatever the options


@st.composite
def policies(draw: st.DrawFn, load: Load, **fixed: Any) -> VllmRules:
    longest = max((item.length for r in load.requests for item in r.items), default=0)
    options: dict[str, Any] = {
        "disable_chunked_mm_input": longest <= load.limits.max_num_batched_tokens and draw(st.booleans()),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.integers(0, 3)),
        "num_prefill_lookahead_tokens": draw(st.integers(0, 1)),
        "chunk_alignment": draw(st.integers(1, 4)),
        "mended": draw(st.booleans()),
    }
    return draw(st.sampled_from([Vllm, VllmPriority]))(**options | fixed)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data(), load=loads())
def test_rules_hold_and_paths_agree_with_any_options(data: st.DataObject, load: Load) -> None:
    """`serve` checks the invariants before and after every iteration."""
    load, policy = resolved(load, "vllm"), data.draw(policies(load))
    backends = SmallBackend(prefill_token=7_001), SmallBackend(prefill_token=7_001)
    quick, slow = (
        serve(load.requests, policy, load.limits, cancels=load.cancels, fast_path=fast_path, backend=backend)
        for fast_path, backend in zip((True, False), backends, strict=True)
    )
    assert_same(quick, slow)
    if quick.verdict == "finished":
        assert_clean(quick.state)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data(), load=loads(cancelled=False))
def test_only_the_faults_stall(data: st.DataObject, load: Load) -> None:
    """As it comes neither policy stalls; with a lookahead or an alignment both may, unless mended."""
    load, mended = resolved(load, "vllm"), data.draw(st.booleans())
    plain = {} if mended else {"num_prefill_lookahead_tokens": 0, "chunk_alignment": 1}
    served = serve(load.requests, data.draw(policies(load, mended=mended, **plain)), load.limits)
    assert set(served.status.values()) == {"finished"}


# Limits


def scenario(**changes: Any) -> Scenario:
    content: dict[str, Any] = {
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": "vllm", **changes.pop("policy", {})},
        "workload": {
            "kind": "synthetic",
            "num_requests": 3,
            "arrivals": {"kind": "at_once"},
            "text_tokens": 10,
            "output_tokens": 2,
            "images": {"size": "1024x1024"},
        },
        "engine": {"max_num_batched_tokens": 512, **changes},
    }
    return Scenario.model_validate(content)


@pytest.mark.parametrize("tokens, budget", [(512, 1024), (4096, 4096)])
def test_budget_and_cache_are_an_iterations_tokens_or_the_largest_item(tokens: int, budget: int) -> None:
    """1024 embeds of an image of 4096 encoder tokens."""
    checked = resolve(scenario(max_num_batched_tokens=tokens))
    engine = checked.scenario.engine
    assert (engine.encoder_max_num_tokens, engine.encoder_cache_rows) == (budget, budget)
    assert engine.encoder_budget_unit == "embeds" and engine.encoder_max_num_items == "unbounded"
    assert engine.capacity == "max_utilization" and not engine.admission_gate
    assert (
        f"as vLLM derives them: {budget} embeds encoded an iteration, {budget} rows of encoder cache" in checked.notes
    )
    assert resolve(checked.scenario).scenario.engine == engine


def test_what_the_scenario_says_of_them_is_taken() -> None:
    engine = resolve(scenario(encoder_max_num_tokens=2048, encoder_cache_rows=3000)).scenario.engine
    assert (engine.encoder_max_num_tokens, engine.encoder_cache_rows) == (2048, 3000)


def test_what_the_encoder_is_profiled_with_is_the_same_in_either_unit() -> None:
    """A budget of 1024 embeds is one of 4096 encoder tokens, four to an embed."""
    same: dict[str, Any] = {"encoder_cache_rows": 5000, "capacity": "max_utilization"}
    engine = resolve(scenario(encoder_max_num_tokens=1024, **same)).scenario.engine
    other = scenario(encoder_max_num_tokens=4096, **same).model_copy(update={"policy": Vllm()})
    fcfs = Scenario.model_validate(other.model_dump() | {"policy": {"kind": "fcfs"}})
    assert engine.num_kv_blocks == resolve(fcfs).scenario.engine.num_kv_blocks


def test_an_item_that_never_fits_a_chunk_is_refused_where_chunks_may_not_split_it() -> None:
    with pytest.raises(InputError, match=r"^policy.disable_chunked_mm_input: .*1024 prompt tokens, an iteration 512"):
        resolve(scenario(policy={"disable_chunked_mm_input": True}))


def test_a_budget_in_embeds_is_open_to_every_policy() -> None:
    roomy = Limits(encoder_budget_unit="embeds", num_kv_blocks=9)
    item = request(0, [Sized(8, 2)]).items[0]
    assert (roomy.encoder_cost(item), Limits().encoder_cost(item)) == (2, 8)
    desk = Desk("fcfs", limits(encoder_budget_unit="embeds", encoder_max_num_tokens=4))
    desk.submit(request(0, [Sized(100, 2)] * 3))
    assert [len(step.encode) for step in desk.steps()] == [2, 1]
