"""What serving engines have and this one does not yet: refused by name, never ignored."""

NOT_BUILT = {
    "tensor parallelism": ("tensor_parallel_size", "tensor_parallel", "tp_size"),
    "pipeline parallelism": ("pipeline_parallel_size", "pipeline_parallel", "pp_size"),
    "data parallelism": ("data_parallel_size", "data_parallel", "dp_size"),
    "quantized KV": ("kv_cache_dtype", "quantized_kv"),
    "quantization": ("quantization", "quant_config"),
    "LoRA": ("lora", "enable_lora", "max_loras", "max_lora_rank"),
    "multi-turn sessions": ("turns", "multi_turn", "sessions", "conversation"),
    "speculative decoding": ("speculative_config", "speculative", "num_speculative_tokens", "spec_decode"),
    "a limit on the model's length": ("max_model_len", "max_seq_len"),
    "CUDA graph padding": ("cuda_graph_sizes", "cudagraph_capture_sizes"),
}
CALLED = {
    "pools.prefill.engines": ("replicas", "num_replicas"),
    "pools": ("disaggregated", "disaggregation", "kv_transfer_config", "ec_transfer_config", "mm_encoder_only"),
}
_HERE = {key: name for name, keys in CALLED.items() for key in keys}
_FEATURE = {key: feature for feature, keys in NOT_BUILT.items() for key in keys}


def refusal(key: str) -> str:
    """Why a key is refused, in one line; empty if it is not one of these."""
    if key in _HERE:
        return f"is called {_HERE[key]} here, see docs/scenarios.md"
    feature = _FEATURE.get(key)
    return f"{feature}: engines have it, this simulator does not yet" if feature else ""
