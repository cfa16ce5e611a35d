"""Configurations of Qwen2-VL by size: two small ones for CPUs and tests, and the true shapes of 2B and 7B."""

from __future__ import annotations

from typing import Any

from transformers import Qwen2VLConfig


def _small(*, hidden: int, layers: int, heads: int, kv_heads: int, vocabulary: int, vision: int, depth: int) -> Any:
    """A model whose tokens depend on everything: at the usual 0.02 a wrong rotary position goes unnoticed."""
    half = hidden // heads // 2
    sections = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]
    text = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32768,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "initializer_range": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections},
    }
    tower = {
        "depth": depth,
        "embed_dim": vision,
        "num_heads": 4,
        "hidden_size": hidden,
        "mlp_ratio": 2,
        "initializer_range": 0.25,
    }
    special = {"vision_start_token_id": 3, "vision_end_token_id": 4, "image_token_id": 5, "video_token_id": 6}
    return Qwen2VLConfig(text_config=text, vision_config=tower, tie_word_embeddings=False, **special)


def _published(*, hidden: int, intermediate: int, heads: int, kv_heads: int, vocabulary: int, tied: bool) -> Any:
    """config.json of Qwen/Qwen2-VL-2B-Instruct and -7B-Instruct on the Hugging Face hub."""
    text = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": 28,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32768,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    }
    tower = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": hidden, "mlp_ratio": 4}
    special = {"vision_start_token_id": 151652, "vision_end_token_id": 151653}
    special |= {"image_token_id": 151655, "video_token_id": 151656}
    return Qwen2VLConfig(text_config=text, vision_config=tower, tie_word_embeddings=tied, **special)


def config_of(name: str) -> Any:
    """A fresh configuration: whoever sets attention functions changes it."""
    return SIZES[name]()


SIZES = {
    "tiny": lambda: _small(hidden=64, layers=2, heads=4, kv_heads=2, vocabulary=512, vision=64, depth=2),
    "small": lambda: _small(hidden=256, layers=4, heads=8, kv_heads=2, vocabulary=2048, vision=128, depth=4),
    "qwen2-vl-2b": lambda: _published(
        hidden=1536, intermediate=8960, heads=12, kv_heads=2, vocabulary=151_936, tied=True
    ),
    "qwen2-vl-7b": lambda: _published(
        hidden=3584, intermediate=18_944, heads=28, kv_heads=4, vocabulary=152_064, tied=False
    ),
}
