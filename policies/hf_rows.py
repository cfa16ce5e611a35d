"""Hugging Face transformers' continuous batching: rows for all images of a request, or none."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from policies.builder import PlanBuilder
from policies.limits import Limits
from policies.policy import Policy
from policies.request_state import RequestState

SAFETY_MARGIN = {"fifo": 0.15, "prefill_first": 0.0}
LEAST_ROWS = 16384


class HfRows(Policy):
    """Encodes all images of a request with its first chunk, if the cache has rows for all of them, or passes it over.

    Nothing is kept for whom it passes over, so a request with many images starves behind others with few. No output
    is shared. An offloaded request starts again without its images, so whoever was encoded is never offloaded, and
    such requests can stall each other.
    """

    kind: Literal["hf_rows"] = "hf_rows"
    source: ClassVar[str] = "transformers PR #46376, continuous batching at 58db84e7 and f450b8dd"
    apart: ClassVar[bool] = False
    fixed: ClassVar[Mapping[str, Any]] = {
        "encoder_max_num_items": "unbounded",
        "encoder_max_num_tokens": "unbounded",
        "encoder_cache_reuse": False,
        "admission_gate": False,
        "release": "prompt_end",
        "capacity": "max_utilization",
        "chunked_prefill": True,
    }
    scheduler: Literal["fifo", "prefill_first"] = "fifo"  # decodes first, or prompts under way first
    safety_margin: Annotated[float, Field(ge=0, le=1)] | None = None  # share of the KV blocks that only decodes, or the
    # first of an iteration, may use; left out: 0.15 for fifo, 0 for prefill_first
    keep_inputs: bool = False  # what the engine does not: keep pixels, so that an encoded request can be offloaded too

    def own_cache_rows(self, limits: Limits, row_bytes: int) -> int:
        return max(LEAST_ROWS, limits.max_num_batched_tokens)

    def schedule(self, builder: PlanBuilder) -> None:
        builder.encode_per_request()
        under_way = [r for r in builder.contexts if r.blocks and not _decodes(r)]
        waiting = self._waiting(builder)
        if self.scheduler == "fifo":
            starved = self._decode(builder) + self._prefill(builder, [*under_way, *waiting])
        else:
            starved = self._prefill(builder, under_way) + self._decode(builder) + self._prefill(builder, waiting)
        self._offload(builder, starved)

    def _waiting(self, builder: PlanBuilder) -> list[RequestState]:
        """Offloaded and fresh requests in turn; none from an offload on until somebody finishes."""
        offloaded = [r for r in builder.contexts if not r.blocks]
        active = len(builder.contexts) - len(offloaded) + len(builder.state.decodes)
        finished = builder.state.num_finished
        if active and any(r.num_finished_before == finished for r in offloaded):
            return []
        offloaded.sort(key=lambda r: r.queued)
        return [r for pair in zip_longest(offloaded, builder.waiting) for r in pair if r is not None]

    def _decode(self, builder: PlanBuilder) -> list[RequestState]:
        """The decodes in order, as far as tokens and blocks go; returns those that got no block to grow into."""
        decodes, paused = builder.state.decodes, [r for r in builder.contexts if _decodes(r)]
        fit = len(decodes) <= builder.tokens_left and builder.blocks_to_decode <= builder.free_blocks
        if fit and not paused:
            builder.decode()
            return []
        starved = []
        for request in sorted([*paused, *decodes], key=lambda r: r.order):
            if not builder.tokens_left:
                break
            if not (builder.prefill(request, 1) if request in paused else builder.decode_one(request)):
                starved.append(request)
        return starved

    def _prefill(self, builder: PlanBuilder, candidates: Iterable[RequestState]) -> list[RequestState]:
        """One chunk for each that gets rows and blocks; returns the active ones that got no blocks."""
        starved = []
        for request in candidates:
            if not builder.tokens_left or self._spares(builder):
                break
            active = bool(request.blocks)
            if not self._start(builder, request) and active:
                starved.append(request)
        return starved

    def _spares(self, builder: PlanBuilder) -> bool:
        margin = SAFETY_MARGIN[self.scheduler] if self.safety_margin is None else self.safety_margin
        return bool(builder.plan) and builder.free_blocks < margin * builder.state.pool.num_blocks

    def _start(self, builder: PlanBuilder, request: RequestState) -> bool:
        """A chunk, with it all of the images, and a seat if it has none yet."""
        if request.order < 0 and not builder.has_seats:
            return False
        attempt, chunk = builder.attempt(), min(request.remaining, builder.tokens_left)
        if not (builder.encode_all(request, builder.missing(request)) and builder.prefill(request, chunk)):
            attempt.undo()
            return False
        if request.order < 0:
            builder.admit(request)
        return True

    def _offload(self, builder: PlanBuilder, starved: list[RequestState]) -> None:
        """Take the newest of the starved off until the blocks suffice for the others in the next iteration."""
        most = builder.state.max_num_batched_tokens
        needed = {r: builder.blocks_needed(r, min(r.remaining, most)) for r in starved}
        for request in reversed(starved):
            if sum(needed.values()) > builder.free_blocks and self._may_offload(builder, request):
                builder.preempt(request)
                del needed[request]

    def _may_offload(self, builder: PlanBuilder, request: RequestState) -> bool:
        """Never the last active one, nor one whose images were encoded: their pixels are gone."""
        decodes, preempted = builder.state.decodes, builder.plan.preempted
        active = sum(r not in preempted for r in (*decodes, *builder.contexts) if r.blocks)
        active += sum(not r.blocks for r, _ in builder.plan.prefill)
        return active > 1 and (self.keep_inputs or not request.num_encodes)


def _decodes(request: RequestState) -> bool:
    """Whether it is a decode that the last iteration left out."""
    return request.remaining == 1 and request.num_generated > 0 and bool(request.blocks)
