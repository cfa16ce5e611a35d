"""Asks aiconfigurator's published silicon tables for the times of encoder calls and of whole iterations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from aiconfigurator_core.sdk.engine import EngineHandle
from aiconfigurator_core.sdk.perf_database import resolve_query_version

from sim.architecture import Architecture
from sim.parameters import LanguageModel, VisionTower
from sim.silicon_encoder import EncoderTimes
from sim.timings import COUNTS, PARTS

Row = dict[str, Any]

IMAGES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
SIZES = (
    *(
        16,
        64,
        144,
        256,
        400,
        484,
        576,
        784,
        900,
        1024,
        1296,
        1600,
        1936,
        2304,
        2704,
        3136,
        3600,
        4096,
        4624,
        5184,
        5476,
    ),
    *(6400, 7744, 8464, 9216, 10000, 10816, 12544, 14400, 16384),
)
MOST_ENCODER_TOKENS = 65536  # in a call
# Matrix products were timed at these token counts: each step, where kernels change, and one token past it.
STEPS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, *range(256, 4353, 256))
TIMED = {*STEPS, *(step + 1 for step in STEPS), 8192, 16384}
BETWEEN = {round(32 * 2 ** (octave / 8)) for octave in range(73)}
CHUNKS = sorted({1, 2, 4, 8} | TIMED | BETWEEN)
CACHED = (0, 512, 1024, 2048, 4096, 8192, 16384)
DECODES = (*range(1, 16), *sorted(tokens for tokens in TIMED if tokens <= 256))
CONTEXTS = (1, 16, 64, 256, 512, 1024, 1536, 2048, 3072, 4096, 5096, 6144, 8192, 12288, 16384, 32768)
MIXED = (256, 512, 1024, 2048, 4096, 8192), (1, 4, 8, 16, 32, 64), (1024, 2048, 5096, 8192)
NO_ANSWER = 2  # the output length that leaves contexts as they are


def silicon_rows(architecture: Architecture, system: str, backend: str, ranks: int) -> pd.DataFrame:
    """Rows as in a CSV of timings. Encoder and language model are split over the ranks, as engines do by default.

    Raises whatever aiconfigurator raises where it has no such table.
    """
    with TemporaryDirectory() as folder:
        _write_config(architecture.language, Path(folder))
        engine = EngineHandle.compile(folder, system, backend, tp_size=ranks)
    rows = [*_encoder(engine, architecture.vision, ranks), *_prefill(engine), *_decode(engine), *_mixed(engine)]
    table = pd.DataFrame(rows, columns=["stage", *COUNTS, "total_ms", *PARTS])
    return table.fillna(0).astype(dict.fromkeys(COUNTS, "int64"))


def version_of(system: str, backend: str) -> str:
    """The backend's, whose kernels were timed."""
    return str(resolve_query_version(system, backend, "current"))


def _write_config(model: LanguageModel, folder: Path) -> None:
    """A config.json. Norms of queries and keys are left out, as aiconfigurator's own Qwen3-VL leaves them out."""
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.mlp,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))


def _encoder(engine: EngineHandle, vision: VisionTower, ranks: int) -> Iterator[Row]:
    times = EncoderTimes(engine, vision, ranks)
    for size, images in product(SIZES, IMAGES):
        if images * size <= MOST_ENCODER_TOKENS:
            yield {"stage": "encoder", "images": images, "tokens": size, "total_ms": times(images, size)}


def _prefill(engine: EngineHandle) -> Iterator[Row]:
    for chunk, cached in product(CHUNKS, CACHED):
        shape = {"batch_size": 1, "isl": chunk + cached, "prefix": cached, "osl": NO_ANSWER}
        times = _by_attention(engine.run_static_per_op(**shape, mode="static_ctx")[0])
        yield {"stage": "prefill", "chunk": chunk, "cached": cached} | _parts(times, "prefill_attention_ms")


def _decode(engine: EngineHandle) -> Iterator[Row]:
    for decodes, context in product(DECODES, CONTEXTS):
        times = _by_attention(engine.decode_step_per_op(decodes, context, NO_ANSWER))
        yield {"stage": "decode", "decodes": decodes, "context": context} | _parts(times, "decode_attention_ms")


def _by_attention(ops: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    """Milliseconds of what is not attention, and of attention."""
    attention = [op[1] for op in ops if op[0].endswith("_attention")]
    return sum(op[1] for op in ops) - sum(attention), sum(attention)


def _parts(times: tuple[float, float], attention: str) -> Row:
    return {"total_ms": sum(times), "gemm_ms": times[0], attention: times[1]}


def _mixed(engine: EngineHandle) -> Iterator[Row]:
    """Decodes beside a chunk of a prompt as long as their contexts; the chunk's time is the mean over the prompt."""
    for chunk, decodes, context in product(*MIXED):
        if chunk <= context:
            times = engine.mixed_step_breakdown(chunk, decodes, context, NO_ANSWER, 0)
            shape = {"stage": "mixed", "chunk": chunk, "prompt": context, "decodes": decodes, "context": context}
            yield shape | dict(zip(("total_ms", *PARTS), times, strict=True))
