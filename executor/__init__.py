"""The live half: Qwen2-VL's vision encoder and paged decoding on CPU or CUDA, driven by the same policies."""
