"""Hold and wait in the encoder cache: who stalls, that it is noticed and named, and who never does."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acting import BUDGETED, SAFE
from rules import MS, Sized, limits, request
from servers import Served, serve

from policies.limits import Limits
from workloads.request import Request

CASES = json.loads((Path(__file__).parent / "data" / "deadlock.json").read_text())
by_name = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
STUCK = {
    "first-incomplete reservation stalls": {
        1: "waits for 4 encoder-cache rows for item 0: of 5, 2 held by request 2 (2)",
        2: "waits for 3 encoder-cache rows for item 1: of 5, 2 held by itself (2), 4 reserved for another",
    },
    "stalls even with the admission gate": {
        1: "waits for 5 encoder-cache rows for item 1: of 9, 5 held by itself (3), request 2 (2)",
        2: "waits for 1 encoder-cache rows for item 1: of 9, "
        "5 held by request 1 (3), itself (2), 5 reserved for another",
    },
}


def run(
    case: dict[str, Any], policy: str, *late: Request, cancels: dict[int, int] | None = None, **changes: Any
) -> Served:
    names = ("encoder_max_num_items", "encoder_max_num_tokens", "encoder_cache_rows", "admission_gate")
    asked = [
        request(given["id"], [Sized(*costs) for costs in zip(given["encoder_tokens"], given["rows"], strict=True)])
        for given in case["requests"]
    ]
    return serve([*asked, *late], policy, limits(**{name: case[name] for name in names} | changes), cancels=cancels)


@by_name
def test_head_of_line_stalls_and_the_stuck_are_named(case: dict[str, Any]) -> None:
    served = run(case, "head_of_line")
    assert served.status == {0: "finished", 1: "stalled", 2: "stalled"} and served.verdict == "stalled"
    named = {id: reason.partition(" rows for")[0] for id, reason in served.blockers.items()}
    assert served.blockers.keys() == {1, 2} and all(reason.startswith("waits for") for reason in named.values())
    assert served.blockers == STUCK[case["name"]]
    assert served.table.loc[[1, 2], "reason"].to_dict() == served.blockers


def test_it_stalls_when_the_case_says_so() -> None:
    """The first encodes {0: [0], 2: [0]}, then {0: [1]}; the second is stuck after iteration 2 with 5 rows resident."""
    first, second = (run(case, "head_of_line") for case in CASES)
    assert [step.encode for step in first.steps] == [((0, 0), (2, 0)), ((0, 1),)]
    assert first.state.cache.held_rows == 2
    assert len(second.steps) == 3 and second.state.cache.held_rows == 5


@by_name
@pytest.mark.parametrize("policy", SAFE)
def test_whole_footprints_finish(policy: str, case: dict[str, Any]) -> None:
    assert set(run(case, policy).status.values()) == {"finished"}


@by_name
def test_a_stall_ends_when_somebody_who_holds_rows_gives_up(case: dict[str, Any]) -> None:
    """The server is idle, not broken: a cancellation wakes it, and the others go on."""
    served = run(case, "head_of_line", cancels={2: 50 * MS})
    assert served.status == {0: "finished", 1: "finished", 2: "cancelled"}


def random_loads(seed: int, count: int, *, cost: int, gate: bool) -> Iterator[tuple[list[Request], Limits]]:
    """All at once, two to four requests of one to three items, budgets from just enough; `cost` tokens a row."""
    rng = random.Random(seed)
    for _ in range(count):
        rows = [[rng.randint(1, 6) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(2, 4))]
        largest = max(max(of_request) for of_request in rows)
        budgets = {
            "encoder_cache_rows": max(sum(of_request) for of_request in rows) + rng.choice([0, 0, 1, 2]),
            "encoder_max_num_tokens": cost * (largest + rng.choice([0, 0, 1, 3])),
            "encoder_max_num_items": rng.randint(1, 4),
        }
        asked = [request(id, [Sized(cost * n, n) for n in of_request]) for id, of_request in enumerate(rows)]
        yield asked, limits(admission_gate=gate, num_kv_blocks=20, **budgets)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("cost", [1, 4])
@pytest.mark.parametrize("policy", SAFE)
def test_whole_footprints_never_stall(policy: str, cost: int, gate: bool) -> None:
    for asked, server in random_loads(1, 150, cost=cost, gate=gate):
        assert set(serve(asked, policy, server).status.values()) == {"finished"}


@pytest.mark.parametrize("policy", BUDGETED)
def test_whatever_stalls_is_noticed_and_named(policy: str) -> None:
    """`serve` itself insists that every stuck request has a blocker, and that no server goes round in circles."""
    stalls = 0
    for asked, server in random_loads(2, 250, cost=1, gate=False):
        served = serve(asked, policy, server)
        stuck = [id for id, status in served.status.items() if status == "stalled"]
        assert (served.verdict == "stalled") == bool(stuck)
        assert sorted(served.blockers) == stuck
        stalls += bool(stuck)
    assert (stalls == 0) if policy in ("footprint", "trt_main") else (stalls > 0)


def test_whom_a_stall_holds_up_behind_it() -> None:
    """A text request that needs no rows passes a stalled head, one that needs rows says so."""
    late = request(3, text=5, arrival=10 * MS), request(4, [Sized(1, 1)], arrival=20 * MS)
    roomy = run(CASES[0], "head_of_line", *late)
    assert roomy.status[3] == "finished" and roomy.status[4] == "stalled"
    with_a_seat = run(CASES[0], "head_of_line", *late, max_num_seqs=3)
    assert with_a_seat.status[3] == "finished" and "encoder-cache rows" in with_a_seat.blockers[4]


# Stalls that are none of the encoder's making


@pytest.mark.parametrize("policy", SAFE)
def test_whole_footprints_do_not_stall_when_the_kv_cache_preempts(policy: str) -> None:
    """Request 1 is preempted while 3 holds all rows: 3 must get the blocks that 1 cannot use without rows."""
    asked = [
        request(0, text=2, output=7),
        request(1, [Sized(1, 1)], text=3, output=7),
        request(2, text=1, output=2),
        request(3, [Sized(1, 4), Sized(1, 3)], text=1),
    ]
    tight = limits(
        capacity="max_utilization", block_size=3, num_kv_blocks=6, encoder_max_num_items=1, encoder_cache_rows=7
    )
    assert set(serve(asked, policy, tight).status.values()) == {"finished"}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "head_of_line"])
def test_no_decode_is_given_up_for_one_who_cannot_use_its_blocks(policy: str, fast_path: bool) -> None:
    """Request 2 waits for rows, not blocks: to preempt 3 for it stops the server with work left to do."""
    shared = Sized(1, 4, "shared")
    asked = [
        request(0, [shared]),
        request(2, [Sized(1, 3)]),
        request(3, text=1, output=4),
        request(4, [shared]),
    ]
    tight = limits(capacity="max_utilization", block_size=3, num_kv_blocks=3, encoder_cache_rows=4)
    served = serve(asked, policy, tight, fast_path=fast_path)
    assert served.status[3] == "finished" and served.table.loc[3, "num_preemptions"] == 0
