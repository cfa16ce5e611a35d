"""What kernel timings leave out, estimated once from a server's log, for profiles fitted to published timings."""

from __future__ import annotations

from typing import Any

LOG = (
    "what kernel timings leave out (patch and position embedding, launch gaps, host work), estimated from an SGLang "
    "server's log on one H200 with Qwen3-VL-8B: encoder 4x3520 tokens 49.6 ms, 8x3520 90.4 ms, 4x8160 145.3 ms; "
    "decode 64 sequences at context 11000 30.5 ms, 1 at 5000 5.47 ms"
)
ELSEWHERE = "; taken over unchanged: of this device, engine, model or number of ranks no such log was at hand"


def corrections(*, own_log: bool) -> dict[str, Any]:
    """`own_log` where the log is of that very server."""
    return {
        "label": LOG if own_log else LOG + ELSEWHERE,
        "encoder_offset": {
            "value": 9.0,
            "unit": "ms",
            "source": "e0, an eager encoder; the log's encoder figures give 8 to 10 ms",
        },
        "language_model_factor": {"value": 1.05, "unit": "1", "source": "the log's decode figures"},
        "host": {"value": 0.3, "unit": "ms", "source": "the log's decode figures"},
    }
