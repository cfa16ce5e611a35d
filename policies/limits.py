"""What an engine may use in one iteration and hold at one time, as written in a scenario and as resolved from it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.units import in_bytes
from workloads.errors import InputError
from workloads.request import MultimodalItem

Count = Annotated[int, Field(ge=1, le=2**40)]
MAX_BLOCKS = 2**24  # each has its number in memory
Blocks = Annotated[int, Field(ge=1, le=MAX_BLOCKS)]
Unbounded = Literal["unbounded"]


class Interference(BaseModel):
    """How much longer both take while encoder and language model share the device: 1 not at all, 2 nothing gained."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    factor: Annotated[float, Field(ge=1, le=100, strict=False)]
    source: Annotated[str, Field(min_length=1)]  # who measured it, where


class Limits(BaseModel):
    """Budgets and sizes of one engine. A field left out is filled in by `resolve`.

    Names and defaults of the encoder's budgets are TensorRT-LLM's (PR #16051 and its documentation, 1.4.0rc).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_num_seqs: Count = 128  # active requests at one time
    max_num_batched_tokens: Count = 8192  # prefill and decode tokens of one iteration
    chunked_prefill: bool = True  # a prompt may be computed over several iterations
    block_size: Annotated[int, Field(ge=1, le=1024)] = 16  # tokens of a KV block
    num_kv_blocks: Blocks | None = None  # left out: as many as fit the device's memory
    free_gpu_memory_fraction: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.9  # of what is left, for the KV
    enable_prefix_caching: bool = False  # start with the KV blocks that the prompt's beginning is in already
    capacity: Literal["no_evict", "max_utilization"] = "no_evict"  # reserve to completion, or preempt by recompute
    encoder_max_num_items: Count | Unbounded | None = None  # left out: max_num_seqs
    encoder_max_num_tokens: Count | Unbounded | None = None  # left out: max_num_batched_tokens
    encoder_budget_unit: Literal["encoder_tokens", "embeds"] = "encoder_tokens"  # of encoder_max_num_tokens
    encoder_cache_rows: Count | Unbounded | None = None  # rows of encoder output; left out: encoder_cache_max_bytes
    encoder_cache_max_bytes: Annotated[int, Field(ge=0, le=2**50)] = 128 * 2**20  # 128 MiB
    encoder_side_stream_max_ahead: Annotated[int, Field(ge=0, le=2**20)] = 0  # batches beside the language model; or 0
    encoder_side_stream_interference: Interference | None = None  # left out: the profile's, or an assumption
    encoder_cache_reuse: bool = True  # keep released outputs for other requests; a budget of 0 bytes says no too
    admission_gate: bool = True  # a waiting request must be able to start encoding
    release: Literal["progressive", "prompt_end", "iteration"] = "progressive"  # when prefill has passed an item, or
    # the prompt; or at the end of every iteration that read it, where an engine keeps no references in between

    @property
    def references(self) -> bool:
        """Whether requests hold the outputs that they have yet to read."""
        return self.release != "iteration"

    @model_validator(mode="after")
    def _decodes_fit(self) -> "Limits":
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): every running request decodes one token an iteration"
            )
        return self

    @model_validator(mode="after")
    def _interference_has_a_stream(self) -> "Limits":
        if self.encoder_side_stream_interference is not None and not self.encoder_side_stream_max_ahead:
            raise ValueError("encoder_side_stream_interference goes with an encoder_side_stream_max_ahead of 1 or more")
        return self

    def fixed(self, fixed: Mapping[str, Any]) -> tuple["Limits", list[str]]:
        """With what a policy's engine leaves no choice in, and a line for each field that was asked for otherwise."""
        if self.release == "iteration" and fixed.get("release") != "iteration":
            raise InputError("engine.release: only sglang, which keeps no references, releases after every iteration")
        asked = {name for name in fixed if name in self.model_fields_set and getattr(self, name) != fixed[name]}
        notes = [f"engine.{name} is {fixed[name]}: this policy's engine knows nothing else" for name in sorted(asked)]
        return self.model_copy(update=dict(fixed)), notes

    def encoder_cost(self, item: MultimodalItem) -> int:
        """What encoding an item takes of `encoder_max_num_tokens`: what the encoder attends over, or what it yields."""
        return item.encoder_tokens if self.encoder_budget_unit == "encoder_tokens" else item.embeds

    def resolve(
        self, *, largest_item: MultimodalItem | None, row_bytes: int, budgeted: bool, own_rows: int | None = None
    ) -> tuple["Limits", list[str]]:
        """Every encoder budget as a number or `unbounded`, and what had to be changed, one line each.

        `largest_item` is the largest that this scenario can produce, `row_bytes` of one row of encoder output,
        `budgeted` is false for a policy from before there were budgets, `own_rows` are those of an engine's own
        encoder cache where the scenario does not say.
        """
        if not budgeted:
            budgets = ("encoder_max_num_items", "encoder_max_num_tokens", "encoder_cache_rows")
            return self.model_copy(update=dict.fromkeys(budgets, "unbounded")), []
        tokens, raised = self._raised_tokens(largest_item)
        rows, clamped = self._cache_rows(row_bytes) if own_rows is None else (self._own_rows(row_bytes, own_rows), [])
        resolved = {
            "encoder_max_num_items": self.encoder_max_num_items or self.max_num_seqs,
            "encoder_max_num_tokens": tokens,
            "encoder_cache_rows": rows,
            "encoder_cache_reuse": self.encoder_cache_reuse and self.encoder_cache_max_bytes > 0,
        }
        return self.model_copy(update=resolved), raised + clamped

    def _raised_tokens(self, largest: MultimodalItem | None) -> tuple[int | Unbounded, list[str]]:
        """The token budget must let the largest item through, since items are never split."""
        tokens = self.encoder_max_num_tokens or self.max_num_batched_tokens
        cost = 0 if largest is None else self.encoder_cost(largest)
        if tokens == "unbounded" or 2 * cost <= tokens:
            return tokens, []
        if cost <= tokens:
            return tokens, [] if self.encoder_max_num_tokens else [_one_at_a_time(tokens, cost)]
        return cost, [f"encoder_max_num_tokens raised from {tokens} to {cost}, this scenario's largest item"]

    def _own_rows(self, row_bytes: int, own_rows: int) -> int | Unbounded:
        """What the scenario says, as it says it; else what the engine has by itself."""
        if self.encoder_cache_rows is not None:
            return self.encoder_cache_rows
        asked = "encoder_cache_max_bytes" in self.model_fields_set
        return max(1, self.encoder_cache_max_bytes // row_bytes) if asked else own_rows

    def _cache_rows(self, row_bytes: int) -> tuple[int | Unbounded, list[str]]:
        """A budget in bytes holds at least one iteration's embeddings; one in rows is taken as it is."""
        if self.encoder_cache_rows is not None:
            return self.encoder_cache_rows, []
        rows, least = self.encoder_cache_max_bytes // row_bytes, self.max_num_batched_tokens
        if rows >= least:
            return rows, []
        note = (
            f"encoder_cache_max_bytes raised from {in_bytes(self.encoder_cache_max_bytes)} to "
            f"{in_bytes(least * row_bytes)} ({least} rows): one iteration's embeddings"
        )
        return least, [note]


def _one_at_a_time(tokens: int, cost: int) -> str:
    return (
        f"encoder_max_num_tokens is left out, so {tokens} as max_num_batched_tokens: "
        f"one item of this scenario's largest ({cost} tokens) an iteration"
    )
