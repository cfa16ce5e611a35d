"""What must hold in every iteration of every run: over all policies, options and random small workloads."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import POLICIES, Served, Sized, SmallBackend, assert_clean, everyone, limits, request, serve
from small_loads import Load, loads, unlimited

RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
PARTS = ("preparation", "queue_wait", "encode", "prefill", "reservation_wait", "encoder_budget_wait", "other")
every_policy = pytest.mark.parametrize("policy", POLICIES)


def served(load: Load, policy: str, fast_path: bool = True) -> Served:
    load = unlimited(load, policy)
    backend = SmallBackend(prefill_token=7_001, encode_token=13_003)
    return serve(load.requests, policy, load.limits, cancels=load.cancels, backend=backend, fast_path=fast_path)


@every_policy
@RANDOM
@given(load=loads(), fast_path=st.booleans())
def test_every_rule_holds_in_every_iteration(policy: str, load: Load, fast_path: bool) -> None:
    """`serve` checks the invariants before and after every iteration; here is what must be true at the end."""
    run = served(load, policy, fast_path)
    assert set(run.status) == {r.id for r in load.requests}
    assert set(run.status.values()) <= {"finished", "cancelled", "stalled"}
    if run.verdict == "finished":
        assert_clean(run.state)
    else:
        stuck = [id for id, status in run.status.items() if status == "stalled"]
        assert sorted(run.blockers) == stuck and stuck


@every_policy
@RANDOM
@given(load=loads(cancelled=False))
def test_whoever_finishes_has_all_tokens(policy: str, load: Load) -> None:
    """Also after preemptions, where the answer so far is computed again but not emitted again."""
    run = served(load, policy)
    table = run.table
    done = table[table["status"] == "finished"]
    for asked in load.requests:
        if asked.id in done.index:
            assert done.loc[asked.id, "output_tokens"] == asked.output_tokens
    assert len(run.itl) == (done["output_tokens"] - 1).sum()
    assert (run.itl.values > 0).all()


@every_policy
@RANDOM
@given(load=loads())
def test_times_are_in_order_and_the_parts_sum_to_the_ttft(policy: str, load: Load) -> None:
    run = served(load, policy)
    table = run.table
    done = table[table["status"] == "finished"]
    times = done[["arrival", "prepared", "admitted", "first_token", "finish"]]
    assert (times.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    nanoseconds = (table[[*PARTS, "ttft"]] * 1e9).round()
    answered = nanoseconds[nanoseconds["ttft"].notna()].astype("int64")
    assert (answered[list(PARTS)].sum(axis=1) == answered["ttft"]).all()
    assert (answered >= 0).all(axis=None)
    text = [r.id for r in load.requests if not r.items and r.id in answered.index]
    assert (answered.loc[text, ["encode", "reservation_wait", "encoder_budget_wait"]] == 0).all(axis=None)


@every_policy
@RANDOM
@given(load=loads())
def test_iterations_follow_one_another(policy: str, load: Load) -> None:
    run = served(load, policy)
    table = run.iterations
    assert (table["end"] > table["start"]).all()
    assert (table["start"].iloc[1:].to_numpy() >= table["end"].iloc[:-1].to_numpy() - 1e-12).all()
    assert table["num_prefill_tokens"].sum() == sum(tokens for step in run.steps for _, tokens in step.prefill)
    assert (table["kv_blocks_used"] <= run.state.pool.num_blocks).all()
    assert (table["encoder_rows_held"] <= run.state.encoder_cache_rows).all()
    assert (table["encoder_rows_resident"] <= run.state.encoder_cache_rows).all()
    assert (table["num_running"] <= run.state.max_num_seqs).all()


@every_policy
@RANDOM
@given(load=loads())
def test_counts_of_encodes_and_hits_are_those_of_the_plans(policy: str, load: Load) -> None:
    run = served(load, policy)
    encoded = run.encoded()
    for id, row in run.table.iterrows():
        assert row["num_encodes"] == sum(owner == id for owner, _ in encoded)
        asked = run.requests[int(str(id))].request
        if row["status"] == "finished" and not row["num_preemptions"]:
            assert row["num_encodes"] + row["num_cache_hits"] == len(asked.items)


@pytest.mark.parametrize("policy", ["unbudgeted", "footprint"])
@settings(RANDOM, max_examples=200)
@given(load=loads(cancelled=False))
def test_no_livelock_and_no_stall_where_there_is_no_reason_for_one(policy: str, load: Load) -> None:
    assert set(served(load, policy).status.values()) == {"finished"}


@every_policy
@settings(RANDOM, max_examples=100)
@given(load=loads(cancelled=False, capacity="max_utilization", encoder_cache_rows=100))
def test_preemption_alone_stalls_nobody(policy: str, load: Load) -> None:
    """With rows to spare nothing but KV blocks is short, and the oldest always gets those."""
    run = served(load, policy)
    assert set(run.status.values()) == {"finished"}


@every_policy
@RANDOM
@given(load=loads(cancelled=False, capacity="no_evict"))
def test_a_reservation_to_completion_is_never_broken(policy: str, load: Load) -> None:
    run = served(load, policy)
    assert not run.table["num_preemptions"].any()


@every_policy
@RANDOM
@given(load=loads(cancelled=False))
def test_everybody_can_leave_a_stalled_server(policy: str, load: Load) -> None:
    state = served(load, policy).state
    for stuck in everyone(state):
        state.abort(stuck)
        state.abort(stuck)
    assert_clean(state)
