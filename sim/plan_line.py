"""One iteration of a live run as its plan log has it: what ran, and how long it took."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from workloads.frozen import LATEST

Whole = Annotated[int, Field(ge=0, le=LATEST)]
Grid = tuple[Whole, Whole, Whole]


class PlanLine(BaseModel):
    """One iteration. Requests go by their ids and items by (id, index in the prompt); what is empty is left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    iteration: Whole
    admitted: list[Whole] = []
    preempted: list[Whole] = []
    held_back: list[Whole] = []  # decodes that get no token
    requeued: list[Whole] = []  # of the preempted
    refused: list[Whole] = []  # requests that fail because the policy says so
    hits: list[tuple[Whole, Whole]] = []  # (id, tokens): who starts behind so many cached ones
    attached: list[tuple[Whole, Whole]] = []
    charged: list[tuple[Whole, Whole]] = []
    reclaimed: list[tuple[Whole, Whole]] = []
    encode: list[tuple[Whole, Whole, Grid]] = []  # with (frames, height, width) in patches
    encodes_per_request: bool = False  # one encoder call after the other, instead of one for all
    prefill: list[tuple[Whole, Whole, Whole]] = []  # (id, tokens of the chunk, tokens cached before it)
    kept_blocks: list[tuple[Whole, Whole]] = []  # (id, tokens whose KV blocks are taken for later)
    decode: list[Whole] | None = None  # the cohort in its order, where it is not what it was at its last step
    num_decodes: Whole = 0
    context_tokens: Whole = 0  # that the decodes attend to, summed
    elapsed_ns: tuple[Whole, Whole, Whole] = (0, 0, 0)  # host, encode, compute
    failed: list[Whole] = []
    reason: str = ""
    allocation_failures: Whole = 0  # of this iteration

    def encoder_calls(self) -> list[list[tuple[int, int, Grid]]]:
        """The items that were encoded, call by call."""
        if not self.encodes_per_request:
            return [self.encode] if self.encode else []
        return [[item for item in self.encode if item[0] == id] for id in dict.fromkeys(id for id, _, _ in self.encode)]

    def planned(self) -> dict[str, Any]:
        """All but the outcome."""
        return self.model_dump(exclude={"elapsed_ns", "failed", "reason", "allocation_failures"}, exclude_defaults=True)

    def text(self) -> str:
        """As it stands in the file; the same line always gives the same text."""
        return self.model_dump_json(exclude_defaults=True)
