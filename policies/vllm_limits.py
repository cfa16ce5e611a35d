"""An engine's limits as vLLM derives them."""

from policies.limits import Limits
from workloads.errors import InputError
from workloads.request import MultimodalItem


def vllm_limits(
    limits: Limits, *, largest_item: MultimodalItem | None, row_bytes: int, whole: MultimodalItem | None
) -> tuple[Limits, list[str]]:
    """Both encoder budgets are embeds (v1/core/encoder_cache_manager.py, compute_mm_encoder_budget).

    Left out, each is `max_num_batched_tokens`, or the largest item where that is larger. There is no budget of items,
    no admission gate, KV blocks are taken as they are needed, and outputs released as prefill passes them. `whole` is
    the largest item where none may be split among chunks. Raises InputError where it does not fit one.
    """
    most = limits.max_num_batched_tokens
    if whole is not None and whole.length > most:
        raise InputError(
            f"policy.disable_chunked_mm_input: this scenario's largest item has {whole.length} prompt tokens, an "
            f"iteration {most}: raise engine.max_num_batched_tokens"
        )
    own = {
        "encoder_budget_unit": "embeds",
        "encoder_max_num_items": "unbounded",
        "encoder_cache_rows": limits.encoder_cache_rows or max(most, largest_item.embeds if largest_item else 0),
        "admission_gate": False,
        "capacity": "max_utilization",
        "release": "progressive",
    }
    resolved, notes = limits.model_copy(update=own).resolve(
        largest_item=largest_item, row_bytes=row_bytes, budgeted=True
    )
    if largest_item is not None and (limits.encoder_max_num_tokens is None or limits.encoder_cache_rows is None):
        notes.append(
            f"as vLLM derives them: {resolved.encoder_max_num_tokens} embeds encoded an iteration, "
            f"{resolved.encoder_cache_rows} rows of encoder cache"
        )
    return resolved, notes
