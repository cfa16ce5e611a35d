"""The attention kernels on the device: beside the oracle, then their speed in the shapes of 2B and 7B.

In a rehearsal a few small batches in Triton's interpreter, and no speed.
"""

import os
import sys
from dataclasses import replace

if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import torch
from common import milliseconds, place, report
from paged_batches import Heads, expected, random_batch

from executor.paged import Paged
from executor.triton_attention import Shape, attend, prepare, query_blocks

MODELS = {"2b": Heads(6, 2, 128, 16), "7b": Heads(7, 4, 128, 16)}
BATCHES = {
    "mixed": ([(100, 100), (37, 800), (1, 1), (512, 2000)], [1, 17, 900, 4096]),
    "chunks": ([(3, 3), (700, 3000)], []),
    "decodes": ([], [1, 33, 512, 5000, 16_000]),
    "padding": ([(90, 300), (60, 0)], [70, 0, 0]),
}
SMALL = {"mixed": ([(9, 9), (5, 40)], [1, 33]), "padding": ([(9, 23), (7, 0)], [12, 0])}
BARS = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}  # parts of the largest value
DECODES = {"1x4096": [4096], "8x4096": [4096] * 8, "64x2048": [2048] * 64, "uneven": [200] * 60 + [16_000] * 4}
CHUNKS = {"2048": (2048, 2048), "512+4096": (512, 4608), "8192": (8192, 8192)}
DECODE_SHAPES = [(64, 4, 5), (64, 4, 3), (32, 4, 5), (32, 4, 7), (128, 4, 4), (128, 8, 5)]  # tile, warps, stages
CHUNK_SHAPES = [(64, 64, 4, 5), (64, 64, 4, 3), (128, 64, 8, 5), (128, 64, 8, 3), (128, 128, 8, 3), (128, 64, 4, 3)]


def error(heads: Heads, chunks: list, decodes: list, dtype: torch.dtype, device: torch.device) -> float:
    query, paged = random_batch(heads, chunks, decodes, dtype=dtype, device=str(device))
    paged.kernel = prepare(paged, query.shape[1])
    paged.kernel.parts.fill_(torch.nan)
    out = attend(query, paged, 0, heads.dim**-0.5).double().cpu()
    want = expected(query, paged, 0, heads.dim**-0.5)
    return float((out - want).abs().max() / want.abs().max()) if out.isfinite().all() else float("inf")


def errors(device: torch.device, rehearsal: bool) -> dict[str, float]:
    heads = {"small": Heads(7, 2, 32, 8)} if rehearsal else MODELS
    dtypes = [torch.float32] if rehearsal else list(BARS)
    return {
        f"{name} {kind} {str(dtype)[6:]}": error(sizes, *batch, dtype, device)
        for name, sizes in heads.items()
        for kind, batch in (SMALL if rehearsal else BATCHES).items()
        for dtype in dtypes
    }


def with_chunk_shape(paged: Paged, group: int, shape: Shape) -> None:
    starts, tokens = paged.query_starts[: paged.num_chunks + 1], paged.kernel.chunk_tokens
    sequences, firsts = query_blocks(starts, tokens, shape.rows // group)
    paged.kernel = replace(paged.kernel, chunk_shape=shape, block_sequences=sequences, block_firsts=firsts)


def timed(query: torch.Tensor, paged: Paged) -> float:
    """Milliseconds of one layer's attention."""
    layers = range(len(paged.keys))
    return milliseconds([lambda layer=layer: attend(query, paged, layer, 0.1) for layer in layers], query.device)


def decode_speeds(heads: Heads, contexts: list[int], tuned: bool) -> dict[str, float]:
    """GB/s of keys and values by (tile, warps, stages)."""
    layers = max(2, min(28, 2**19 // sum(contexts)))  # together larger than the GPU's cache
    query, paged = random_batch(heads, [], contexts, layers=layers, dtype=torch.bfloat16, device="cuda")
    gigabytes = sum(contexts) * 2 * heads.kv * heads.dim * 2 / 1e9
    speeds = {}
    for tile, warps, stages in DECODE_SHAPES if tuned else DECODE_SHAPES[:1]:
        paged.kernel = prepare(paged, query.shape[1])
        shape = replace(paged.kernel.decode_shape, tile=tile, warps=warps, stages=stages)
        paged.kernel = replace(paged.kernel, decode_shape=shape)
        speeds[f"tile {tile} warps {warps} stages {stages}"] = round(gigabytes / timed(query, paged) * 1e3, 1)
    return speeds


def chunk_speeds(heads: Heads, chunk: tuple[int, int], tuned: bool) -> dict[str, float]:
    """TFLOP/s by (rows, tile, warps, stages), and of SDPA without pages where nothing is cached."""
    tokens, total = chunk
    query, paged = random_batch(heads, [chunk], [], layers=4, dtype=torch.bfloat16, device="cuda")
    pairs = tokens * (2 * total - tokens + 1) / 2
    teraflops = 4 * pairs * query.shape[1] * heads.dim / 1e12
    paged.kernel = prepare(paged, query.shape[1])
    speeds = {"as chosen": round(teraflops / timed(query, paged) * 1e3, 1)}
    for rows, tile, warps, stages in CHUNK_SHAPES if tuned else []:
        with_chunk_shape(paged, heads.groups, Shape(rows, tile, warps, stages))
        speeds[f"rows {rows} tile {tile} warps {warps} stages {stages}"] = round(
            teraflops / timed(query, paged) * 1e3, 1
        )
    if tokens == total:
        speeds["SDPA"] = round(teraflops / _sdpa(query, heads) * 1e3, 1)
    return speeds


def _sdpa(query: torch.Tensor, heads: Heads) -> float:
    q = query.transpose(0, 1)[None]
    k, v = (torch.randn(1, heads.kv * heads.groups, len(query), heads.dim, device="cuda").bfloat16() for _ in range(2))
    attention = torch.nn.functional.scaled_dot_product_attention
    return milliseconds([lambda: attention(q, k, v, is_causal=True)] * 4, query.device)


def main() -> None:
    where = place(__doc__)
    seen = errors(where.device, where.rehearsal)
    bars = {str(dtype)[6:]: bar for dtype, bar in BARS.items()}
    failed = [case for case, value in seen.items() if not value <= bars[case.split()[-1]]]
    worst = max((value for case, value in seen.items() if "float16" in case or where.rehearsal), default=0.0)
    headline = f"{len(seen) - len(failed)} of {len(seen)} batches as the oracle, largest error {worst:.1e}"
    figures: dict = {"errors": seen, "failed": failed}
    report("kernels", headline, figures)
    if not where.rehearsal:
        heads = MODELS["7b"]
        figures["decode_gb_per_s"] = {
            name: decode_speeds(heads, contexts, name == "64x2048") for name, contexts in DECODES.items()
        }
        figures["chunk_tflop_per_s"] = {
            name: chunk_speeds(heads, chunk, name == "2048") for name, chunk in CHUNKS.items()
        }
        best = {kind: {name: max(v.values()) for name, v in figures[kind].items()} for kind in list(figures)[2:]}
        report("speed", f"decode GB/s {best['decode_gb_per_s']}, chunk TFLOP/s {best['chunk_tflop_per_s']}", figures)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
