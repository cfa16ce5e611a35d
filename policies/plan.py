"""What the next iteration runs: the shapes that pricing needs and the addresses that running needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from policies.decodes import DecodeCohort
from policies.encoder_cache import Key
from policies.request_state import RequestState


class Blocked(NamedTuple):
    """What refused a request's item: `items`, `tokens` or `rows` that are spent, or a `reservation` of rows."""

    why: Literal["items", "tokens", "rows", "reservation"]
    item: int  # index of the item, in the request's prompt
    num_rows: int  # that were asked for


NOBODY: Mapping[RequestState, str] = MappingProxyType({})


class IterationPlan:
    """Drafted by a policy through the plan builder, completed with addresses by `ServingState.begin`.

    Items are named (request, index in its prompt). A plan with nothing to run is falsy.
    """

    encoder_tokens = 0  # pre-merger, of `encode`
    encodes_per_request = False  # the encoder is called for one request after the other
    num_prefill_tokens = 0
    num_decodes = 0  # set by begin
    context_tokens = 0  # that the decodes attend to; set by begin
    held_back: Collection[
        RequestState
    ] = ()  # decodes that get no token now: they leave the cohort and keep their blocks
    requeued: Collection[RequestState] = ()  # of `preempted`: go to the head of the waiting queue, the last one first
    reclaimed: Sequence[tuple[RequestState, int]] = ()  # outputs taken back before their owners came to read them
    kept_blocks: Sequence[tuple[RequestState, int]] = ()  # (request, tokens whose KV blocks it takes for later)
    refused: Mapping[RequestState, str] = NOBODY  # requests that fail with this iteration, each with the reason
    hits: Mapping[RequestState, Sequence[int]] = {}  # cached KV blocks that those whose prefill begins now start with
    lookahead = 0  # tokens by which prefill has to be past an item before its output is released
    evicted: Collection[Key] = ()  # outputs dropped from the encoder cache whatever else becomes of the draft
    refreshed: Collection[Key] = ()  # outputs that count as released just now, in this order

    def __init__(self, decode: DecodeCohort | None = None) -> None:
        self.admitted: list[RequestState] = []  # leave the waiting queue, in order of admission
        self.preempted: list[RequestState] = []  # give back everything and start over
        self.attached: list[tuple[RequestState, int]] = []  # items held at no cost: cached, or encoded by another owner
        self.charged: list[tuple[RequestState, int]] = []  # items whose rows are charged before they are encoded
        self.encode: list[tuple[RequestState, int]] = []  # items to encode now, in the order of selection
        self.prefill: list[tuple[RequestState, int]] = []  # (request, tokens of this chunk)
        self.decode = decode  # the running decodes, all that are neither preempted nor held back, or none
        self.blocked: dict[RequestState, Blocked] = {}  # whom an encoder budget or the cache refused, and why

    def __bool__(self) -> bool:
        return self.decode is not None or bool(self.prefill or self.encode)

    def encoder_calls(self) -> list[list[tuple[RequestState, int]]]:
        """The items to encode, call by call."""
        if not self.encodes_per_request:
            return [self.encode] if self.encode else []
        calls: dict[RequestState, list[tuple[RequestState, int]]] = {}
        for request, index in self.encode:
            calls.setdefault(request, []).append((request, index))
        return list(calls.values())

    @property
    def decodes_only(self) -> bool:
        """Nothing but decodes, and no request changes its place: drafted again, it would be the same."""
        if self.prefill or self.encode or self.admitted or self.attached or self.charged:
            return False
        return not (self.held_back or self.reclaimed or self.kept_blocks or self.changes_alone)

    @property
    def changes_alone(self) -> bool:
        """Whether it changes something even where it runs nothing: drafted again, it would be another."""
        return bool(self.preempted or self.evicted or self.refreshed or self.refused)
