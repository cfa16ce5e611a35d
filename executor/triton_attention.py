"""Attention of a packed batch on paged keys and values by the Triton kernels: their shapes, workspace and launches.

Chunks go to the varlen kernel and decodes, also those of a mixed batch, to the split-KV one. In the varlen kernel a
decode would fill 1/16 of a program's rows and read its whole context in one program, on one of the GPU's many
processors, for as long as the longest context lasts; two more launches a layer cost less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from executor.paged import Paged
from executor.triton_kernels import paged_decode, paged_decode_reduce, paged_varlen

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
PROGRAMS_PER_PROCESSOR = 4  # decodes are bound by memory: so many programs keep enough reads under way
MAX_SPLITS = 64
STAGES = 5  # a tile's page numbers come a stage before its keys, so that five stages hold two tiles in shared memory
STRETCH = 4096  # longest stretch of keys for one program, lest one long context outlast a whole batch


@dataclass(frozen=True)
class Shape:
    """Of one launch: rows of a program (a token and a head each), keys of a tile, warps and pipeline stages."""

    rows: int
    tile: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Prepared:
    """What one forward needs in all its layers."""

    chunk_tokens: int  # packed tokens of all chunks; the decodes' follow
    chunk_shape: Shape
    block_sequences: Tensor  # [blocks] int32: whose query tokens
    block_firsts: Tensor  # [blocks] int32: the first of them, -1 for padding
    decode_shape: Shape
    splits: int
    least: int  # tiles of the shortest stretch
    parts: Tensor  # [decodes, heads, splits, head_dim] float32, results of the stretches
    weights: Tensor  # [decodes, heads, splits] float32


def prepare(paged: Paged, num_heads: int) -> Prepared:
    """Once a forward, on the device alone, so that it may be captured; sizes depend on the shapes of tensors only.

    Raises TypeError for a dtype that the kernels do not take.
    """
    if paged.keys.dtype not in DTYPES:
        raise TypeError(f"the attention kernels take {', '.join(map(str, DTYPES))}, not {paged.keys.dtype}")
    _, _, block_size, kv_heads, head_dim = paged.keys.shape
    group, decodes = num_heads // kv_heads, len(paged.kv_lens) - paged.num_chunks
    chunk_tokens = len(paged.slots) - decodes
    processors = num_processors(paged.keys.device)
    chunk = chunk_shape(group, head_dim, paged.keys.dtype, chunk_tokens * kv_heads, processors)
    blocks = query_blocks(paged.query_starts[: paged.num_chunks + 1], chunk_tokens, chunk.rows // group)
    decode = decode_shape(group, head_dim, paged.keys.dtype)
    splits, least = num_splits(decodes * kv_heads, paged.tables.shape[1] * block_size, decode.tile, processors)
    parts = paged.keys.new_empty(decodes, num_heads, splits, head_dim, dtype=torch.float32)
    weights = paged.keys.new_empty(decodes, num_heads, splits, dtype=torch.float32)
    return Prepared(chunk_tokens, chunk, *blocks, decode, splits, least, parts, weights)


def attend(query: Tensor, paged: Paged, layer: int, scaling: float) -> Tensor:
    """[T, heads, head_dim] of queries gives as much; this forward's keys and values are in the cache already."""
    plan: Prepared = paged.kernel
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    query = query if query.stride(2) == 1 else query.contiguous()
    keys, values, scale = paged.keys[layer], paged.values[layer], scaling * math.log2(math.e)
    if plan.chunk_tokens:
        attend_chunks(query, keys, values, out, paged, scale)
    if plan.chunk_tokens < len(query):
        attend_decodes(query[plan.chunk_tokens :], keys, values, out[plan.chunk_tokens :], paged, scale)
    return out


def attend_chunks(query: Tensor, keys: Tensor, values: Tensor, out: Tensor, paged: Paged, scale: float) -> None:
    plan, (_, block_size, kv_heads, head_dim) = paged.kernel, keys.shape
    group = query.shape[1] // kv_heads
    paged_varlen[(len(plan.block_firsts), kv_heads)](
        query, keys, values, out, paged.tables, paged.query_starts, paged.kv_lens, plan.block_sequences,
        plan.block_firsts, scale, query.stride(0), query.stride(1), out.stride(0), keys.stride(0), keys.stride(1),
        paged.tables.stride(0), G=group, D=head_dim, WIDTH=width(head_dim), PAGE=block_size,
        TOKENS=plan.chunk_shape.rows // group, ROWS=plan.chunk_shape.rows, TILE=plan.chunk_shape.tile,
        num_warps=plan.chunk_shape.warps, num_stages=plan.chunk_shape.stages,
    )  # fmt: skip


def attend_decodes(query: Tensor, keys: Tensor, values: Tensor, out: Tensor, paged: Paged, scale: float) -> None:
    plan, (_, block_size, kv_heads, head_dim) = paged.kernel, keys.shape
    tables, kv_lens = paged.tables[paged.num_chunks :], paged.kv_lens[paged.num_chunks :]
    group = query.shape[1] // kv_heads
    paged_decode[(len(query), kv_heads, plan.splits)](
        query, keys, values, plan.parts, plan.weights, tables, kv_lens, scale, query.stride(0), query.stride(1),
        keys.stride(0), keys.stride(1), tables.stride(0), G=group, D=head_dim, WIDTH=width(head_dim), PAGE=block_size,
        ROWS=plan.decode_shape.rows, TILE=plan.decode_shape.tile, SPLITS=plan.splits, LEAST=plan.least,
        num_warps=plan.decode_shape.warps, num_stages=plan.decode_shape.stages,
    )  # fmt: skip
    paged_decode_reduce[(len(query), query.shape[1])](
        plan.parts, plan.weights, out, out.stride(0), D=head_dim, WIDTH=width(head_dim), SPLITS=plan.splits,
        num_warps=1 if plan.splits <= 8 else 4,
    )  # fmt: skip


def query_blocks(query_starts: Tensor, tokens: int, per_block: int) -> tuple[Tensor, Tensor]:
    """Sequence and first token of every block of `per_block` query tokens; -1 as first for those left over.

    As many blocks as `tokens` in so many sequences can ever need, so that their number depends on shapes only.
    """
    sequences = len(query_starts) - 1
    lengths = query_starts[1:] - query_starts[:-1]
    counts = (lengths + per_block - 1) // per_block
    ends = counts.cumsum(0, dtype=torch.int32)
    block = torch.arange(tokens // per_block + sequences, dtype=torch.int32, device=query_starts.device)
    sequence = torch.searchsorted(ends, block, right=True, out_int32=True)
    within = sequence.clamp(max=sequences - 1)
    first = (block - (ends - counts)[within]) * per_block
    return within.int(), torch.where(sequence < sequences, first, -1)


def chunk_shape(group: int, head_dim: int, dtype: torch.dtype, programs: int, processors: int) -> Shape:
    """64 rows, or 128 where the GPU stays full with half as many programs: keys are read half as often."""
    rows = max(64, triton.next_power_of_2(group))
    if dtype == torch.float32:  # twice the shared memory, and no tensor cores to feed
        return Shape(rows, 32, 4, 2)
    if programs * group >= 128 * 2 * processors:
        return Shape(max(128, rows), 64, 8, STAGES)
    return Shape(rows, 64, 4, STAGES)


def decode_shape(group: int, head_dim: int, dtype: torch.dtype) -> Shape:
    """A row for every head of the group: matrix instructions take 16 at least."""
    rows = max(16, triton.next_power_of_2(group))
    return Shape(rows, 32, 4, 2) if dtype == torch.float32 else Shape(rows, 64, 4, STAGES)


def num_splits(programs: int, context: int, tile: int, processors: int) -> tuple[int, int]:
    """Stretches of a context of at most so many tokens, and the least tiles of one, for so many (decode, kv head)."""
    fill = -(-PROGRAMS_PER_PROCESSOR * processors // max(programs, 1))
    wanted = max(min(fill, -(-context // tile)), -(-context // STRETCH))
    splits = min(triton.next_power_of_2(wanted), MAX_SPLITS)
    return splits, 1 if programs * splits <= 2 * PROGRAMS_PER_PROCESSOR * processors else 4


def width(head_dim: int) -> int:
    return max(16, triton.next_power_of_2(head_dim))


@cache
def num_processors(device: torch.device) -> int:
    """132, an H100's or H200's, where there is no GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132
