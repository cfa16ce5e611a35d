"""Whether a request can ever be served, and which knob to turn if it cannot: the fail-fast."""

from policies.encoder_cache import Key
from policies.limits import Limits
from policies.request_state import RequestState


def why_never(limits: Limits, request: RequestState, *, whole: bool = True) -> str:
    """Why this engine can never serve the request, in one line with advice; empty if it can.

    `whole`: its policy wants the outputs of all items at once; else only of the one that prefill is at.
    """
    return text_never(limits, request) or (_encoder(limits, request, whole) if request.items else "")


def text_never(limits: Limits, request: RequestState) -> str:
    """What the language model has no room for."""
    assert limits.num_kv_blocks is not None
    capacity = limits.num_kv_blocks * limits.block_size
    if request.max_tokens > capacity:
        return (
            f"needs {request.max_tokens} KV tokens and the pool holds {capacity}: "
            "raise num_kv_blocks or free_gpu_memory_fraction"
        )
    if not limits.chunked_prefill and _at_once(limits, request) > limits.max_num_batched_tokens:
        return (
            f"may have to prefill {_at_once(limits, request)} tokens at once and an iteration computes "
            f"{limits.max_num_batched_tokens}: raise max_num_batched_tokens or set chunked_prefill"
        )
    return ""


def _at_once(limits: Limits, request: RequestState) -> int:
    """The longest prefill it may come to: after a preemption, the answer is computed again with the prompt."""
    return request.max_tokens if limits.capacity == "max_utilization" else request.target


def _encoder(limits: Limits, request: RequestState, whole: bool) -> str:
    largest, most = max(map(limits.encoder_cost, request.items)), limits.encoder_max_num_tokens
    if isinstance(most, int) and largest > most:
        return f"has an item of {largest} encoder tokens and an iteration encodes {most}: raise encoder_max_num_tokens"
    return rows_never(limits, request, whole=whole)


def rows_never(limits: Limits, request: RequestState, *, whole: bool) -> str:
    """What the encoder cache has no room for: all items at one time, each key once, or the largest."""
    rows: dict[Key, int] = {}
    for index, (key, item) in enumerate(zip(request.keys, request.items, strict=True)):
        rows[key if limits.encoder_cache_reuse else ("temporary", request.id, index)] = item.embeds
    needed, held = sum(rows.values()) if whole else max(rows.values()), limits.encoder_cache_rows
    if isinstance(held, int) and needed > held:
        return (
            f"needs {needed} rows of encoder output and the cache holds {held}: "
            "raise encoder_cache_rows or encoder_cache_max_bytes"
        )
    return ""
