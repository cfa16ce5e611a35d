"""What must hold in every iteration of every run: over all policies, options and random small workloads."""

from __future__ import annotations

import numpy as np
import pytest
from acting import EVERY, SAFE
from checks import assert_clean, content, everyone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import Desk, Sized, limits, request
from servers import Served, SmallBackend, serve
from small_loads import Load, loads, resolved

from sim.itl import pooled_itl

RANDOM = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
# Faults of engines: who has encoded is never offloaded, so all may wait for blocks (46); a chunk cut short to less than
# a unit is none (9); what was encoded for a prompt of one piece is let go if it is not all
MAY_STALL = ("hf_rows", "hf_rows, prompts first", "trt_chunk_demand, in units", "trt_chunk_demand, v2")
PARTS = ["preparation", "queue_wait", "encode", "transfer", "prefill"]
PARTS += ["reservation_wait", "encoder_budget_wait", "delivery", "other"]
every_policy = pytest.mark.parametrize("policy", EVERY)


def served(load: Load, policy: str, fast_path: bool = True, fails: frozenset[tuple[str, str]] = frozenset()) -> Served:
    load = resolved(load, policy)
    backend = SmallBackend(prefill_token=7_001, encode_token=13_003, fails=fails)
    return serve(load.requests, policy, load.limits, cancels=load.cancels, backend=backend, fast_path=fast_path)


@every_policy
@RANDOM
@given(load=loads(), fast_path=st.booleans(), fails=st.sets(st.just(("image", "k0"))))
def test_every_rule_holds_in_every_run(policy: str, load: Load, fast_path: bool, fails: set[tuple[str, str]]) -> None:
    """`serve` checks the invariants before and after every iteration; here is what must be true at the end."""
    run = served(load, policy, fast_path, frozenset(fails))
    assert_everybody_has_an_end(run, load)
    assert_answers_are_whole(run)
    assert_times_are_in_order(run)
    assert_parts_sum_to_the_ttft(run)
    assert_iterations_follow_one_another(run)
    assert_everybody_can_leave(run)


def assert_everybody_has_an_end(run: Served, load: Load) -> None:
    assert set(run.status) == set(run.table.index) == {r.id for r in load.requests}
    assert set(run.status.values()) <= {"finished", "cancelled", "stalled", "failed"}
    stuck = [id for id, status in run.status.items() if status == "stalled"]
    assert sorted(run.blockers) == sorted(stuck) and bool(stuck) == (run.verdict == "stalled")
    if not stuck:
        assert_clean(run.state)


def assert_answers_are_whole(run: Served) -> None:
    """Also after preemptions, where the answer so far is computed again but not emitted again."""
    done = run.table[run.table["status"] == "finished"]
    assert done["output_tokens"].tolist() == [run.requests[id].request.output_tokens for id in done.index]
    assert run.itl.size == (done["output_tokens"] - 1).sum()
    assert (run.itl.values[run.itl.weights > 0] > 0).all()
    for id in done.index[done["num_preemptions"] == 0]:
        answered = run.requests[id]
        assert answered.num_encodes == sum(owner == id for owner, _ in run.encoded())
        # outputs that nobody holds between chunks, or that are taken back, are encoded again
        assert answered.num_encodes <= len(set(answered.keys)) or run.policy.kind in ("sglang", "trt_chunk_demand")


def assert_times_are_in_order(run: Served) -> None:
    done = run.table[run.table["status"] == "finished"]
    times = done[["arrival", "prepared", "admitted", "first_token", "finish"]]
    assert (times.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)


def assert_parts_sum_to_the_ttft(run: Served) -> None:
    """In whole nanoseconds. Text waits for no encoder and pays for none."""
    table = run.table[run.table["ttft"].notna()]
    nanoseconds = (table[[*PARTS, "ttft"]] * 1e9).round().astype("int64")
    assert (nanoseconds[PARTS].sum(axis=1) == nanoseconds["ttft"]).all()
    assert (nanoseconds >= 0).all(axis=None)
    text = table.index[table["num_items"] == 0]
    assert (nanoseconds.loc[text, ["encode", "reservation_wait", "encoder_budget_wait"]] == 0).all(axis=None)


def assert_iterations_follow_one_another(run: Served) -> None:
    table, state = run.iterations, run.state
    start, end = ((table[name] * 1e9).round().astype("int64").to_numpy() for name in ("start", "end"))
    assert (end > start).all() and (start[1:] >= end[:-1]).all()
    assert table["num_prefill_tokens"].sum() == sum(tokens for step in run.steps for _, tokens in step.prefill)
    assert (table["kv_blocks_used"] <= state.pool.num_blocks).all()
    if state.cache.references:  # else what an iteration reads is beside what the cache keeps
        assert (table["encoder_rows_held"] <= state.encoder_cache_rows).all()
        assert (table["encoder_rows_resident"] <= state.encoder_cache_rows).all()
    assert (table["num_running"] <= state.max_num_seqs).all()


def assert_everybody_can_leave(run: Served) -> None:
    for stuck in everyone(run.state):
        run.state.abort(stuck)
        run.state.abort(stuck)
    assert_clean(run.state)


@pytest.mark.parametrize("policy", ["unbudgeted", "sglang", "hf_rows, inputs kept", *SAFE])
@RANDOM
@given(load=loads(cancelled=False))
def test_no_livelock_and_no_stall_where_there_is_no_reason_for_one(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}


@pytest.mark.parametrize("policy", [name for name in EVERY if name not in MAY_STALL])
@settings(RANDOM, max_examples=40)
@given(load=loads(cancelled=False, capacity="max_utilization", encoder_cache_rows=100))
def test_preemption_alone_stalls_nobody(policy: str, load: Load) -> None:
    """With rows to spare nothing but KV blocks is short, and the oldest always gets those."""
    assert set(served(load, policy).status.values()) == {"finished"}


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line", "eager", "footprint"])
def test_whatever_needs_no_encoding_is_a_hit(policy: str) -> None:
    """An item of a request that was never preempted is either encoded for it or found there, one named twice too."""
    twice = request(0, [Sized(1, 1, "a"), Sized(1, 2, "b"), Sized(1, 1, "a")])
    late = request(1, [Sized(1, 2, "b")])
    run = serve([twice, late], policy, limits(encoder_max_num_items=1))
    assert run.table["num_encodes"].tolist() == [2, 0]
    assert run.table["num_cache_hits"].tolist() == [1, 1]


def test_an_answer_may_be_resumed_before_anybody_ever_decoded() -> None:
    """No decode step at all, and yet a gap between two tokens: preempted after its first, 1 gets its second anew."""
    segments = np.array([[5, 0, 0, 0], [9, 0, 0, 1]])
    sample = pooled_itl(segments, np.zeros(0, np.int64))
    assert np.repeat(sample.values, sample.weights).tolist() == [4]


def test_asking_and_being_refused_change_nothing() -> None:
    """Each verb of the builder takes all that it names, or nothing at all."""
    desk = Desk(
        "fcfs", limits(max_num_seqs=1, encoder_cache_rows=4, num_kv_blocks=2, block_size=4, encoder_max_num_items=2)
    )
    first, second = desk.submit(request(0, [Sized(1, 3), Sized(1, 3)], text=2), request(1, text=8))
    builder = desk.builder()

    def books() -> tuple[object, ...]:
        left = (builder.encoder_items_left, builder.encoder_tokens_left, builder.rows_left, builder.reserved_rows)
        plan = builder.plan
        lists = (plan.admitted, plan.preempted, plan.attached, plan.charged, plan.encode, plan.prefill)
        lists += (plan.reclaimed, plan.kept_blocks)
        return (*left, builder.free_blocks, builder.tokens_left, [list(entries) for entries in lists], plan.decode)

    assert builder.admit(first) and builder.encode(first, 0)
    before = books()
    assert not builder.admit(second)
    assert not builder.encode(first, 1)  # 3 rows of 1
    assert not builder.charge(first)
    assert not builder.attach(first, 1)
    assert not builder.prefill(first, 8)  # past the second item
    assert not builder.prefill(first, 0)
    assert not builder.prefill(second, 9)  # 3 blocks of 2
    assert not builder.keep_blocks(second, 9)
    assert not builder.encode_all(first, [1])
    assert not builder.has_room(first)
    assert not builder.reclaim(first, 0)  # it is no output yet
    assert not builder.completes(first)
    assert not builder.decode()
    assert builder.missing(first) == [1] and not builder.ready(first)
    assert books() == before


def test_an_attempt_that_is_undone_has_taken_nothing() -> None:
    """An item that is there, one of another to be encoded, rows taken back from a third, and a chunk."""
    desk = Desk("fcfs", limits(encoder_cache_rows=6, num_kv_blocks=9, block_size=4))
    first, second = desk.submit(request(0, [Sized(1, 3, "a"), Sized(1, 4)], text=2), request(1, [Sized(1, 3, "b")]))
    builder = desk.builder()
    assert builder.admit(first) and builder.admit(second) and builder.encode(first, 0) and builder.encode(second, 0)
    desk.state.begin(builder.plan)
    desk.state.complete(builder.plan)
    (third,) = desk.submit(request(2, [Sized(1, 3, "a")]))
    builder, untouched = desk.builder(), desk.builder()
    for drafted in (builder, untouched):
        assert drafted.missing(first) == [1] and drafted.missing(third) == [0] and not drafted.missing(second)
        assert not drafted.encode(first, 1)  # stays written down as refused
    attempt = builder.attempt()
    assert builder.attach(third, 0) and builder.prefill(third, 4)
    assert not builder.reclaim(first, 0)  # the third holds it too now
    assert builder.reclaim(second, 0) and not builder.reclaim(second, 0) and builder.missing(second) == [0]
    assert not builder.encode(second, 0)  # nor does its owner get it back
    attempt.undo()
    builder.plan.blocked.pop(second)
    assert content(builder.plan) == content(untouched.plan) and builder.missing(second) == []
    for name in ("rows_left", "free_blocks", "tokens_left", "encoder_items_left", "encoder_tokens_left", "_claims"):
        assert getattr(builder, name) == getattr(untouched, name)
    assert builder.reclaim(second, 0) and not builder.encode(first, 1)  # 3 rows of 4
