"""What the next iteration runs: the shapes that pricing needs and the addresses that running needs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from policies.decodes import DecodeCohort
from policies.request_state import RequestState


class Blocked(NamedTuple):
    """What refused a request's item: `items`, `tokens` or `rows` that are spent, or a `reservation` of rows."""

    why: Literal["items", "tokens", "rows", "reservation"]
    item: int  # index of the item, in the request's prompt
    num_rows: int  # that were asked for


class IterationPlan:
    """Drafted by a policy through the plan builder, completed with addresses by `ServingState.begin`.

    Items are named (request, index in its prompt). A plan with nothing to run is falsy.
    """

    encoder_tokens = 0  # pre-merger, of `encode`
    num_prefill_tokens = 0
    num_decodes = 0  # set by begin
    context_tokens = 0  # that the decodes attend to; set by begin

    def __init__(self, decode: DecodeCohort | None = None) -> None:
        self.admitted: list[RequestState] = []  # leave the waiting queue, in order of admission
        self.preempted: list[RequestState] = []  # give back everything and start over
        self.attached: list[tuple[RequestState, int]] = []  # items held at no cost: cached, or encoded by another owner
        self.charged: list[tuple[RequestState, int]] = []  # items whose rows are charged before they are encoded
        self.encode: list[tuple[RequestState, int]] = []  # items to encode now, in the order of selection
        self.prefill: list[tuple[RequestState, int]] = []  # (request, tokens of this chunk)
        self.decode = decode  # the running decodes, all of them, or none
        self.blocked: dict[RequestState, Blocked] = {}  # whom an encoder budget or the cache refused, and why

    def __bool__(self) -> bool:
        return self.decode is not None or bool(self.prefill or self.encode)

    @property
    def decodes_only(self) -> bool:
        """Nothing but decodes, and no request changes its place: drafted again, it would be the same."""
        return not (self.prefill or self.encode or self.admitted or self.attached or self.charged or self.preempted)
