"""Requests and limits from a few small numbers, and a serving state to draft from without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from acting import acting
from checks import CheckedState, checked_type

from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.plan import IterationPlan
from policies.policy import Policy
from policies.prefix_builder import builder_type
from policies.prefix_state import state_type
from policies.request_state import RequestState
from policies.serving import ServingState
from policies.vllm_rules import VllmRules
from workloads.request import MultimodalItem, Request

MS = 1_000_000  # nanoseconds


class Sized(NamedTuple):
    """An item by its two costs; `key` None is an item without a content hash, `...` one that nobody else has."""

    encoder_tokens: int
    rows: int
    key: Any = ...
    modality: str = "image"
    breaks: int = 0  # placeholders that are no embeds


def request(
    id: int,
    items: Iterable[tuple[Any, ...]] = (),
    *,
    text: int = 1,
    output: int = 1,
    arrival: int = 0,
    offsets: Sequence[int] | None = None,
    priority: int = 0,
) -> Request:
    """Items from the first token on (or at `offsets`), then `text` tokens. Times in nanoseconds."""
    placed, end = [], 0
    for index, values in enumerate(items):
        item = Sized(*values)
        key = f"{id}/{index}" if item.key is ... else item.key
        start, length = offsets[index] if offsets else end, item.rows + item.breaks
        grid, pixels = (1, 1, item.encoder_tokens), 100 * item.encoder_tokens
        costs = (item.encoder_tokens, item.rows, pixels)
        placed.append(MultimodalItem(key, item.modality, grid, start, length, *costs))  # type: ignore[arg-type]
        end = start + length
    return Request(id, arrival, end + text, output, tuple(placed), priority=priority)


def limits(**changes: Any) -> Limits:
    """Room for everything, but for what is changed."""
    roomy = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 10_000,
        "num_kv_blocks": 300,
        "encoder_max_num_items": 1000,
        "encoder_max_num_tokens": 100_000,
        "encoder_cache_rows": 100_000,
        "admission_gate": False,
    }
    return Limits(**(roomy | changes))


def checked_state(policy: Policy, given: Limits) -> CheckedState:
    """For a policy whose engine has limits of its own kind, those; checked as far as the engine keeps to them."""
    checked = checked_type(state_type(ServingState, given))
    if not isinstance(policy, VllmRules):
        return checked(given.fixed(policy.fixed)[0], policy.queue_key)
    state = checked(policy.resolve(given, largest_item=None, row_bytes=1)[0], policy.queue_key)
    state.cuts_prompts = True  # vLLM stops before an item that is not to be had, even without chunked prefill
    return state


# One draft, without an engine


@dataclass
class Desk:
    """A serving state to hand requests to and to draft from, iteration by iteration."""

    policy: str | Policy
    limits: Limits
    now: int = 0  # nanoseconds
    state: ServingState = field(init=False)

    def __post_init__(self) -> None:
        self.state = checked_state(acting(self.policy), self.limits)

    def submit(self, *requests: Request) -> list[RequestState]:
        states = [RequestState(asked) for asked in requests]
        for state in states:
            self.state.submit(state)
        return states

    def builder(self) -> PlanBuilder:
        return builder_type(self.state)(self.state, self.now)

    def draft(self) -> IterationPlan:
        builder = self.builder()
        acting(self.policy).schedule(builder)
        return builder.plan

    def step(self) -> Step:
        """Draft, begin and complete one iteration."""
        plan = self.draft()
        if not plan:
            return Step()
        self.state.begin(plan)
        step = Step.of(plan)
        self.state.complete(plan)
        return step

    def steps(self, most: int = 1000) -> list[Step]:
        """Until nothing can run any more."""
        steps = []
        while (step := self.step()) != Step():
            steps.append(step)
            assert len(steps) < most, "the server goes round in circles"
        return steps


class Step(NamedTuple):
    """What an iteration ran, by request ids."""

    encode: tuple[tuple[int, int], ...] = ()
    prefill: tuple[tuple[int, int], ...] = ()
    decodes: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: IterationPlan) -> Step:
        encode = tuple((r.id, index) for r, index in plan.encode)
        prefill = tuple((r.id, tokens) for r, tokens in plan.prefill)
        decodes = tuple(sorted(r.id for r in plan.decode.members)) if plan.decode is not None else ()
        return cls(encode, prefill, decodes, tuple(r.id for r in plan.preempted))
