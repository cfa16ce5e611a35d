"""Replays recorded decisions of the real vLLM scheduler: `python tests/decide.py FILE` says where ours differ.

A line of FILE is a workload with what vLLM 0.32 decided in every iteration (see `Case`). Printed are the first
difference of each differing case and `N of M identical`; the exit code is 0 only if all are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from policies import Vllm, VllmPriority
from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.request_state import RequestState
from policies.serving import ServingState
from workloads.request import MultimodalItem, Request

Iteration = dict[str, Any]  # of a case's `steps`
COMPARED = ("tokens", "encode", "preempted", "freed", "running", "waiting", "encoder_cache_free")


class Case(NamedTuple):
    """One workload: its limits, its requests in order of arrival, and vLLM's iterations."""

    seed: int
    limits: dict[str, Any]
    requests: list[dict[str, Any]]  # items are (offset, length, key); cost and rows are the length
    steps: list[Iteration]
    stalled: bool = False  # requests were left when the recording ended

    @property
    def policy(self) -> Policy:
        """Priorities are vLLM's own option, which the recordings name only where it is on."""
        kind = VllmPriority if self.limits.get("policy") == "priority" else Vllm
        return kind(
            disable_chunked_mm_input=self.limits.get("disable_chunked_mm_input", False),
            long_prefill_token_threshold=self.limits.get("long_prefill_token_threshold", 0),
            scheduler_reserve_full_isl=self.limits.get("reserve_full_isl", True),
        )

    @property
    def engine(self) -> Limits:
        """One of vLLM's blocks is none that a request can have."""
        given = self.limits
        return Limits(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            chunked_prefill=given.get("enable_chunked_prefill", True),
            num_kv_blocks=given["num_blocks"] - 1,
            block_size=given["block_size"],
            capacity="max_utilization",
            encoder_budget_unit="embeds",
            encoder_max_num_items="unbounded",
            encoder_max_num_tokens=given["encoder_compute_budget"],
            encoder_cache_rows=given["encoder_cache_size"],
            admission_gate=False,
        )


class Server:
    """The serving state and a policy, iteration by iteration, without a clock; requests go by their names."""

    def __init__(self, case: Case) -> None:
        self.policy = case.policy
        self.state = ServingState(case.engine, self.policy.queue_key)
        self._names = [asked["id"] for asked in case.requests]  # by id
        self._arriving = [(asked["step"], state_of(id, asked)) for id, asked in enumerate(case.requests)]

    def iterate(self, step: int) -> Iteration:
        """What is decided in that iteration, in the recordings' words."""
        for _, request in [arrival for arrival in self._arriving if arrival[0] <= step]:
            self.state.submit(request)
        self._arriving = [arrival for arrival in self._arriving if arrival[0] > step]
        builder = PlanBuilder(self.state, 0)
        self.policy.schedule(builder)
        plan = builder.plan
        self.state.begin(plan)
        decided = self._told(plan)
        self.state.complete(plan)
        return decided

    def _told(self, plan: IterationPlan) -> Iteration:
        state, cache = self.state, self.state.cache
        tokens = dict(plan.prefill) | (dict.fromkeys(plan.decode.members, 1) if plan.decode else {})
        encode: dict[str, list[int]] = {}
        for request, index in plan.encode:
            encode.setdefault(self._names[request.id], []).append(index)
        encoded = {request.keys[index] for request, index in plan.encode}
        return {
            "tokens": {self._names[r.id]: tokens[r] for r in in_order(tokens)},
            "encode": encode,
            "preempted": [self._names[request.id] for request in plan.preempted],
            "freed": [key[1] for key in plan.evicted if key not in encoded],
            "running": [self._names[r.id] for r in in_order((*state.contexts, *state.decodes))],
            "waiting": len(state.waiting),
            "encoder_cache_free": state.encoder_cache_rows - cache.held_rows - cache.released_rows,
        }


def in_order(requests: Iterable[RequestState]) -> list[RequestState]:
    return sorted(requests, key=lambda request: request.order)


def state_of(id: int, asked: dict[str, Any]) -> RequestState:
    items = tuple(
        MultimodalItem(key, "image", (1, 1, length), offset, length, length, length, length)
        for offset, length, key in asked["items"]
    )
    lengths = asked["prompt_tokens"], asked["output_tokens"]
    return RequestState(Request(id, asked["step"], *lengths, items, priority=asked.get("priority", 0)))


def comparable(iteration: Iteration) -> Iteration:
    """Tokens with their order, encoded items by request, preempted requests as a set, freed keys in their order."""
    told = {name: iteration[name] for name in COMPARED}
    return told | {"tokens": list(told["tokens"].items()), "preempted": sorted(told["preempted"])}


def difference(case: Case) -> str:
    """The first iteration that is decided otherwise, and in what; empty if there is none."""
    server = Server(case)
    for recorded in case.steps:
        theirs, ours = comparable(recorded), comparable(server.iterate(recorded["step"]))
        for name in COMPARED:
            if ours[name] != theirs[name]:
                return f"iteration {recorded['step']}: {name}: vLLM {theirs[name]}, ours {ours[name]}"
    return ""


def cases(path: Path) -> Iterator[Case]:
    for line in path.read_text().splitlines():
        if line.strip():
            yield Case(**json.loads(line))


def main(path: Path) -> int:
    count, identical = 0, 0
    for count, case in enumerate(cases(path), start=1):
        told = difference(case)
        identical += not told
        if told:
            print(f"line {count} (seed {case.seed}): {told}")
    print(f"{identical} of {count} identical")
    return 0 if identical == count else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    sys.exit(main(Path(sys.argv[1])))
