"""Whether a request can ever be served, and which knob to turn if it cannot: the fail-fast of admission (S24)."""

from policies.limits import Limits
from policies.request_state import RequestState


def why_never(limits: Limits, request: RequestState) -> str:
    """Why this engine can never serve the request, in one line with advice; empty if it can."""
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
    return _encoder(limits, request) if request.items else ""


def _at_once(limits: Limits, request: RequestState) -> int:
    """The longest prefill it may come to: after a preemption, the answer is computed again with the prompt."""
    return request.max_tokens if limits.capacity == "max_utilization" else request.target


def _encoder(limits: Limits, request: RequestState) -> str:
    largest, most = max(item.encoder_tokens for item in request.items), limits.encoder_max_num_tokens
    if isinstance(most, int) and largest > most:
        return f"has an item of {largest} encoder tokens and an iteration encodes {most}: raise encoder_max_num_tokens"
    rows = sum(item.embeds for item in request.items)
    if limits.encoder_cache_reuse:  # equal items share their rows
        rows = sum({key: item.embeds for key, item in zip(request.keys, request.items, strict=True)}.values())
    if isinstance(limits.encoder_cache_rows, int) and rows > limits.encoder_cache_rows:
        return (
            f"needs {rows} rows of encoder output and the cache holds {limits.encoder_cache_rows}: "
            "raise encoder_cache_rows or encoder_cache_max_bytes"
        )
    return ""
