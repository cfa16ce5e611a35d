"""TensorRT-LLM's next step: the language model proposes chunks, and the encoder supplies the items that they need."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from policies.admission import admit_in_order
from policies.builder import PlanBuilder
from policies.encoder_cache import Key
from policies.feasible import rows_never, text_never
from policies.limits import Limits
from policies.policy import Policy
from policies.proposals import can_start, propose, whole_units
from policies.request_state import RequestState
from policies.sentences import encode_in_prompt_order


class TrtChunkDemand(Policy):
    """Encodes what the next chunks need; a chunk ends before an item that cannot be had yet.

    While a request fits the encoder's budgets, all of its items are encoded at once. Rows are taken back from the
    newest requests whose prefill has not come to them, which then encode the items again.
    """

    kind: Literal["trt_chunk_demand"] = "trt_chunk_demand"
    source: ClassVar[str] = "TensorRT-LLM, chunk-demand scheduling of multimodal encoder items (review)"
    apart: ClassVar[bool] = False
    fixed: ClassVar[Mapping[str, Any]] = {"release": "progressive"}
    chunk_unit_size: Annotated[int, Field(ge=1)] = 1  # tokens; chunks but the last of a prompt are multiples of it
    encoder_scheduling_policy: Literal["DEFAULT", "EAGER"] = "DEFAULT"  # whole requests where that is possible, or what
    # the chunks need, and with what the budgets then have left whatever comes next
    use_kv_cache_manager_v2: bool = False  # its scheduler is of one piece: what the chunks need, never whole requests
    mended: bool = False  # without two faults: a chunk that is cut short to less than a unit is none at all; and V2's
    # scheduler lets go of what it encoded for a prompt of one piece where an iteration cannot encode all of it

    def why_never(self, limits: Limits, request: RequestState) -> str:
        """A single item must fit the cache, and all of them where a prompt is computed in one piece."""
        never = text_never(limits, request)
        if never or not request.items:
            return never
        return rows_never(limits, request, whole=not limits.chunked_prefill)

    def schedule(self, builder: PlanBuilder) -> None:
        admit_in_order(builder)
        requests = can_start(builder)
        builder.decode()
        proposed = propose(builder, requests, self.chunk_unit_size)
        chunks = {request: chunk for request, chunk in proposed.items() if chunk}
        first = next((request for request in chunks if builder.missing(request)), None)
        whole = first is not None and self._fits_whole(builder, first)
        for request, chunk in chunks.items():
            attempt = builder.attempt()
            if not whole:
                self._demand(builder, request, chunk)
            elif self._obtain(builder, request, builder.missing(request), whole=True):
                builder.prefill(request, chunk)
            else:
                attempt.undo()
                if request is first and not builder.state.limits.chunked_prefill:
                    encode_in_prompt_order(builder, request)
        if self.encoder_scheduling_policy == "EAGER":
            for request in builder.contexts:
                encode_in_prompt_order(builder, request)

    def _fits_whole(self, builder: PlanBuilder, request: RequestState) -> bool:
        """Whether one iteration could encode all that the first such request misses, and the cache hold it.

        Where a prompt is computed in one piece there is no other way, so items gather over several iterations.
        """
        state, ahead = builder.state, range(request.next_item, len(request.items))
        gathers = not state.limits.chunked_prefill
        if self.encoder_scheduling_policy == "EAGER" or (self.use_kv_cache_manager_v2 and not self.mended):
            return False
        if gathers or self.use_kv_cache_manager_v2:
            return gathers
        rows = {request.keys[i]: request.items[i].embeds for i in ahead}
        missing = {request.keys[i]: request.items[i] for i in builder.missing(request)}
        costs = [state.limits.encoder_cost(item) for key, item in missing.items() if not _cached(builder, key)]
        return (
            sum(rows.values()) <= state.encoder_cache_rows
            and len(costs) <= state.encoder_max_num_items
            and sum(costs) <= state.encoder_max_num_tokens
        )

    def _demand(self, builder: PlanBuilder, request: RequestState, chunk: int) -> None:
        """A chunk with the items that it needs, or one that ends before the first that cannot be had."""
        start, items = request.num_computed_tokens, request.items
        while chunk:
            attempt = builder.attempt()
            needed = [i for i in builder.missing(request) if items[i].offset < start + chunk]
            if self._obtain(builder, request, needed) and builder.prefill(request, chunk):
                return
            refused = builder.missing(request)[0]  # or taken back from itself, for an earlier one
            attempt.undo()
            chunk = self._cut(builder, request, items[refused].offset - start)

    def _cut(self, builder: PlanBuilder, request: RequestState, num_tokens: int) -> int:
        whole = whole_units(builder, request, num_tokens, self.chunk_unit_size)
        return whole or (num_tokens if self.mended and builder.state.limits.chunked_prefill else 0)

    def _obtain(self, builder: PlanBuilder, request: RequestState, indices: list[int], *, whole: bool = False) -> bool:
        """One item after the other, with rows taken back as need be: all of them, or as far as it goes.

        Of a request that is wanted `whole`, nothing is taken back for its own sake.
        """
        for index in [*indices]:
            victims = self._victims(builder, request, None if whole else index)
            while not builder.encode(request, index, alone=True):
                short = builder.plan.blocked[request].why == "rows"
                if not short or not any(builder.reclaim(*victim) for victim in victims):
                    return False
        return True

    def _victims(
        self, builder: PlanBuilder, request: RequestState, own_after: int | None
    ) -> Iterator[tuple[RequestState, int]]:
        """Items that requests hold: the newest request first, of each the last item first."""
        for holder in reversed(builder.contexts):
            for index in sorted(holder.holds, reverse=True):
                if holder is not request or (own_after is not None and index > own_after):
                    yield holder, index


def _cached(builder: PlanBuilder, key: Key) -> bool:
    entry = builder.state.cache.get(key)
    return entry is not None and entry.ready
