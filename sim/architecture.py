"""The models whose published timings profiles are made from: shapes as in their config.json on the Hugging Face hub."""

from __future__ import annotations

from typing import Any, NamedTuple

from sim.parameters import LanguageModel, VisionTower
from workloads.models import MODELS, VisionLanguageModel

BYTES = 2  # of a parameter and of an activation, bf16


class Architecture(NamedTuple):
    """A model as it is served."""

    shape: VisionLanguageModel
    hub_id: str
    language: LanguageModel
    vision: VisionTower

    def weight_bytes(self, ranks: int) -> int:
        """Of one rank."""
        return BYTES * (self.language.parameters.of_rank(ranks) + self.vision.parameters.of_rank(ranks))

    def memory(self, ranks: int) -> dict[str, Any]:
        """What a profile states for the memory ledger, of one rank."""
        config = f"config.json of {self.hub_id}"
        parted = (
            f"of one rank of {ranks}: matrices parted, norms and embeddings of patches on each; " if ranks > 1 else ""
        )
        total = sum(map(sum, (self.language.parameters, self.vision.parameters)))
        weights = f"{parted}{total / 1e9:.3f}e9 parameters in bf16, counted from the shapes in {config}"
        stated = {
            "weights": (self.weight_bytes(ranks), "bytes", weights),
            "dtype": (BYTES, "bytes", "bf16"),
            "vision_hidden": (self.vision.hidden, "elements", config),
            "vision_mlp": (self.vision.mlp_width // ranks, "elements", config),
            "patch": (self.vision.patch, "pixels", config),
            "temporal_patch": (2, "frames", config),
            "channels": (3, "channels", "RGB"),
        }
        return {name: dict(zip(("value", "unit", "source"), figure, strict=True)) for name, figure in stated.items()}


def _qwen2(hidden: int, heads: int, kv_heads: int, mlp: int, vocabulary: int, tied: bool) -> LanguageModel:
    return LanguageModel(hidden, 28, heads, kv_heads, 128, mlp, vocabulary, tied, biased=True)


_QWEN2_7B = _qwen2(3584, 28, 4, 18944, 152064, False)
_QWEN3_8B = LanguageModel(4096, 36, 32, 8, 128, 12288, 151936, tied=False, biased=False)
_PARTS = {
    "qwen2-vl-2b": (
        "Qwen/Qwen2-VL-2B-Instruct",
        _qwen2(1536, 12, 2, 8960, 151936, True),
        VisionTower(1280, 32, 16, 5120, 14, (5120, 1536)),
    ),
    "qwen2-vl-7b": ("Qwen/Qwen2-VL-7B-Instruct", _QWEN2_7B, VisionTower(1280, 32, 16, 5120, 14, (5120, 3584))),
    "qwen2.5-vl-7b": (
        "Qwen/Qwen2.5-VL-7B-Instruct",
        _QWEN2_7B,
        VisionTower(1280, 32, 16, 3420, 14, (5120, 3584), gated=True, windowed=28),
    ),
    "qwen3-vl-8b": (
        "Qwen/Qwen3-VL-8B-Instruct",
        _QWEN3_8B,
        VisionTower(1152, 27, 16, 4304, 16, (4608, 4096), num_projectors=4, positions=2304, patch_biased=True),
    ),
}
ARCHITECTURES = {name: Architecture(MODELS[name], *parts) for name, parts in _PARTS.items()}
