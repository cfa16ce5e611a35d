"""The vision tower's operators, timed from aiconfigurator's published silicon tables."""

from __future__ import annotations

from typing import Any

from aiconfigurator_core.sdk.common import VisionEncoderConfig
from aiconfigurator_core.sdk.engine import EngineHandle, build_ops_json
from aiconfigurator_core.sdk.models.blocks.vit import build_encoder_ops

from sim.parameters import VisionTower

MERGED = 4  # patches that become one embedding
WINDOW = 64  # patches that attend to one another in Qwen2.5-VL's windowed layers


class EncoderTimes:
    """Times calls of the encoder, its matrices split over the ranks, as engines do by default."""

    def __init__(self, engine: EngineHandle, vision: VisionTower, ranks: int) -> None:
        self._engine, self._vision = engine, vision
        self._ops = _ops(vision, vision.mlp, ranks)
        self._gated_ops = _ops(vision, 2 * vision.mlp, ranks)  # gate and up are one product of twice the width

    def __call__(self, images: int, size: int) -> float:
        """Milliseconds for so many images of `size` patches each."""
        times = self._times(self._ops, images, size)
        if self._vision.gated:
            wide = self._times(self._gated_ops, images, size)
            times |= {name: wide[name] for name in ("encoder_ffn1_gemm", "encoder_act")}
        if windowed := self._vision.windowed:
            times["encoder_attention"] = self._windowed(times["encoder_attention"], windowed, images * size)
        return sum(times.values())

    def _windowed(self, whole: float, layers: int, patches: int) -> float:
        """An approximation: windows of 64 patches each, none of them cut by the edge of an image."""
        within = self._times(self._ops, -(-patches // WINDOW), WINDOW)["encoder_attention"]
        share = layers / self._vision.depth
        return share * within + (1 - share) * whole

    def _times(self, ops: str, images: int, size: int) -> dict[str, float]:
        """Of each operator; projectors run on merged patches."""
        tower = self._evaluated(ops, images, size)
        merged = self._evaluated(ops, images, size // MERGED)
        return {name: (merged if "projector" in name else tower)[name] for name in tower}

    def _evaluated(self, ops: str, images: int, size: int) -> dict[str, float]:
        shape: dict[str, Any] = {"is_context": True, "batch_size": images, "s": size, "x": images * size}
        return {name: ms for name, ms, *_ in self._engine.evaluate_ops_json(ops, **shape)}


def _ops(vision: VisionTower, mlp: int, ranks: int) -> str:
    config = VisionEncoderConfig(
        depth=vision.depth,
        hidden_size=vision.hidden,
        num_heads=vision.heads,
        intermediate_size=mlp,
        patch_size=vision.patch,
        temporal_patch_size=2,
        spatial_merge_size=2,
        out_hidden_size=vision.projector[1],
        projector_dims=((vision.projector[0],) * 2, vision.projector),
        projector_n_instances=vision.num_projectors,
        partial_rotary_factor=1.0,
    )
    return str(build_ops_json(build_encoder_ops(config, ranks, enable_encoder_dp=False)))
