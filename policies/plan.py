"""What the next iteration runs: the shapes that pricing needs and the addresses that running needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from policies.decodes import DecodeCohort
from policies.request_state import RequestState
from policies.setbacks import MaySetBack


class Blocked(NamedTuple):
    """What refused a request's item: `items`, `tokens` or `rows` that are spent, or a `reservation` of rows."""

    why: Literal["items", "tokens", "rows", "reservation"]
    item: int  # index of the item, in the request's prompt
    num_rows: int  # that were asked for


class IterationPlan(MaySetBack):
    """Drafted by a policy through the plan builder, completed with addresses by `ServingState.begin`.

    Items are named (request, index in its prompt). A plan with nothing to run is falsy.
    """

    __slots__ = (
        *("admitted", "attached", "blocked", "charged", "context_tokens", "decode", "encode", "encoder_tokens"),
        *("encodes_per_request", "kept_blocks", "lookahead", "num_decodes", "num_prefill_tokens", "prefill"),
    )
    hits: Mapping[RequestState, Sequence[int]] = MappingProxyType({})  # of a `CachingPlan`; of any other there are none

    def __init__(self, decode: DecodeCohort | None = None) -> None:
        self.admitted: list[RequestState] = []  # leave the waiting queue, in order of admission
        self.setbacks = None  # what it takes away, where it does
        self.attached: list[tuple[RequestState, int]] = []  # items held at no cost: cached, or encoded by another owner
        self.charged: list[tuple[RequestState, int]] = []  # items whose rows are charged before they are encoded
        self.encode: list[tuple[RequestState, int]] = []  # items to encode now, in the order of selection
        self.encoder_tokens = 0  # pre-merger, of `encode`
        self.encodes_per_request = False  # the encoder is called for one request after the other
        self.prefill: list[tuple[RequestState, int]] = []  # (request, tokens of this chunk)
        self.num_prefill_tokens = 0
        self.lookahead = 0  # tokens by which prefill has to be past an item before its output is released
        self.kept_blocks: Sequence[tuple[RequestState, int]] = ()  # (request, tokens whose KV blocks it takes early)
        self.decode = decode  # the running decodes, all that are neither preempted nor held back, or none
        self.num_decodes = 0  # set by begin
        self.context_tokens = 0  # that the decodes attend to; set by begin
        self.blocked: dict[RequestState, Blocked] = {}  # whom an encoder budget or the cache refused, and why

    def is_empty(self) -> bool:
        """Whether there is nothing to run: what `not plan` says, in half the time."""
        return self.decode is None and not (self.prefill or self.encode)

    def __bool__(self) -> bool:
        return not self.is_empty()

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
        return not (self.kept_blocks or (self.setbacks and (self.held_back or self.reclaimed or self.changes_alone)))

    @property
    def changes_alone(self) -> bool:
        """Whether it changes something even where it runs nothing: drafted again, it would be another."""
        return bool(self.preempted or self.evicted or self.refreshed or self.refused)


class CachingPlan(IterationPlan):
    """Where prefixes are cached."""

    __slots__ = ("hits",)

    def __init__(self) -> None:
        super().__init__()
        self.hits: Mapping[RequestState, Sequence[int]] = {}  # cached KV blocks that who starts now begins with
