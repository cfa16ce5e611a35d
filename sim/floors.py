"""The floor below an iteration's time: what each part computes and reads, at the device's best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.architecture import BYTES, Architecture
from sim.devices import SiliconDevice
from sim.figures import Roofline

PEAKS = "data sheet of the device, dense bf16, as aiconfigurator's description of the system has it"
COUNTED = "counted from the model's config.json, of one rank"


def roofline(architecture: Architecture, device: SiliconDevice, ranks: int) -> dict[str, Any]:
    """What a profile states of it."""
    language, vision = architecture.language, architecture.vision
    kv_heads = max(1, language.kv_heads // ranks)
    counted = {
        "encoder_weights": (BYTES * vision.parameters.of_rank(ranks), "bytes"),
        "encoder_token": (vision.token_flops / ranks, "operations/token"),
        "encoder_pair": (vision.pair_flops / ranks, "operations/token^2"),
        "language_weights": (BYTES * language.read / ranks, "bytes"),
        "language_token": (language.token_flops / ranks, "operations/token"),
        "attention_pair": (language.pair_flops / ranks, "operations/token^2"),
        "kv_token": (2 * BYTES * language.layers * kv_heads * language.head_dim, "bytes/token"),
    }
    peaks = {"peak": (device.peak, "operations/s"), "bandwidth": (device.bandwidth, "bytes/s")}
    stated = [(name, *figure, PEAKS) for name, figure in peaks.items()]
    stated += [(name, *figure, COUNTED) for name, figure in counted.items()]
    return {name: {"value": value, "unit": unit, "source": source} for name, value, unit, source in stated}


class Floors:
    """Milliseconds below which no part of an iteration can be."""

    def __init__(self, stated: Roofline) -> None:
        self._stated = stated

    def encode(self, tokens: int, squares: int) -> float:
        """Frames of s pre-merger tokens: sum(s) and sum(s^2)."""
        s = self._stated
        work = s.encoder_token.value * tokens + s.encoder_pair.value * squares
        return self._ms(work, s.encoder_weights.value) if tokens else 0.0

    def gemm(self, tokens: int) -> float:
        s = self._stated
        return self._ms(s.language_token.value * tokens, s.language_weights.value) if tokens else 0.0

    def prefill_attention(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Chunks of (tokens, tokens already cached): queries attend to what is before them."""
        pairs = sum(chunk * (cached + (chunk + 1) / 2) for chunk, cached in chunks)
        keys = sum(chunk + cached for chunk, cached in chunks)
        return self._ms(self._stated.attention_pair.value * pairs, self._stated.kv_token.value * keys)

    def decode_attention(self, context_tokens: int) -> float:
        s = self._stated
        return self._ms(s.attention_pair.value * context_tokens, s.kv_token.value * context_tokens)

    def _ms(self, operations: float, read: float) -> float:
        return 1e3 * max(operations / self._stated.peak.value, read / self._stated.bandwidth.value)
