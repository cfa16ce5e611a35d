"""Shortest encoder work first, with ageing: what a request has yet to encode, less what its waiting is worth."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.policy import Policy
from policies.request_state import RequestState
from policies.starting import serve_by

SECOND = 1_000_000_000  # nanoseconds


class ShortestEncoderFirst(Policy):
    """Starts, encodes and prefills whoever has least left to encode; a second of waiting counts as `ageing` tokens.

    Text goes first, outputs that the cache has cost nothing. Nobody passes one that cannot start, and a request of W
    encoder tokens is passed only by those that arrive less than W / `ageing` seconds after it. Requests start with all
    they need, so it never stalls; without ageing large ones may starve.
    """

    kind: Literal["shortest_encoder_first"] = "shortest_encoder_first"
    source: ClassVar[str] = "SJF with ageing, after vLLM PR #29366 and vllm-ascend's PREFLOW (#16360)"

    ageing: Annotated[int, Field(ge=0, le=2**40)] = 8192  # encoder tokens that a second of waiting is worth

    def schedule(self, builder: PlanBuilder) -> None:
        serve_by(builder, lambda r: self._urgency(builder, r))

    def _urgency(self, builder: PlanBuilder, request: RequestState) -> tuple[int, int]:
        """Everybody ages alike, so the difference between two never changes with time, and no plan does."""
        return _encoder_work(builder, request) * SECOND + self.ageing * request.arrival, request.id


def _encoder_work(builder: PlanBuilder, request: RequestState) -> int:
    """Encoder tokens of the items that are neither there nor cached, each content once."""
    if not request.num_items_ahead:
        return 0
    entries, keys, items = builder.state.cache.entries, request.keys, request.items
    tokens = {}
    for index in builder.missing(request) if request.holds else range(request.next_item, len(items)):
        entry = entries.get(keys[index])
        if entry is None or not entry.ready:
            tokens[keys[index]] = items[index].encoder_tokens
    return sum(tokens.values())
