"""Paged attention in Triton: one kernel for prefill chunks, one for decodes split along their keys, and its reduction.

Whatever changes from one forward to the next is read from device memory, so that a launch can sit in a CUDA graph.
Scores are kept in powers of two: `scale` is the usual one times log2(e).
"""
# ruff: noqa: N803  # constants of a compiled kernel are in capitals, as everywhere in Triton

import triton
import triton.language as tl

NOTHING = tl.constexpr(-1.0e30)  # a score that weighs nothing; finite, so that no difference of two is undefined
VARYING = ["table_stride"]  # as wide as the longest sequence: no reason to compile again


@triton.jit
def _tile(
    q, peak, mass, total, keys, values, table, first, stop, last, scale, page_stride, token_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Keys `first` to `first + TILE` (before `stop`) folded into the running softmax of every row.

    A row has the greatest score so far, the mass of all weights relative to it and the weighted total of values; it
    sees keys up to `last`, which is looked at only where MASKED.
    """
    key, dim = first + tl.arange(0, TILE), tl.arange(0, WIDTH)
    there, real = key < stop, dim < D
    page = tl.load(table + key // PAGE, mask=there, other=0).to(tl.int64)
    at = page * page_stride + (key % PAGE) * token_stride
    k = tl.load(keys + at[None, :] + dim[:, None], mask=there[None, :] & real[:, None], other=0.0)
    score = tl.dot(q, k, input_precision="ieee") * scale
    if MASKED:
        score = tl.where(there[None, :] & (key[None, :] <= last[:, None]), score, NOTHING)
    highest = tl.maximum(peak, tl.max(score, 1))
    weight, fade = tl.exp2(score - highest[:, None]), tl.exp2(peak - highest)
    v = tl.load(values + at[:, None] + dim[None, :], mask=there[:, None] & real[None, :], other=0.0)
    total = total * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
    return highest, mass * fade + tl.sum(weight, 1), total


@triton.jit(do_not_specialize=VARYING)
def paged_varlen(
    query, keys, values, out, tables, query_starts, kv_lens, block_sequences, block_firsts, scale,
    query_stride, query_head_stride, out_stride, page_stride, token_stride, table_stride,
    G: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Program (block of TOKENS query tokens of one sequence, kv head); a row is a token and a head of its group.

    The last query token sees all keys, the one before it all but the last, and so on. A block that starts at -1 is
    padding; a sequence of kv_len 0 gets zeros.
    """
    sequence, first = tl.load(block_sequences + tl.program_id(0)), tl.load(block_firsts + tl.program_id(0))
    if first < 0:
        return
    kv_head = tl.program_id(1)
    start = tl.load(query_starts + sequence)
    length = tl.load(query_starts + sequence + 1) - start
    kv_len = tl.load(kv_lens + sequence)
    row, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    token, head = first + row // G, kv_head * G + row % G
    mine = ((row < TOKENS * G) & (token < length))[:, None] & (dim < D)[None, :]
    position = (start + token).to(tl.int64)
    at = position[:, None] * query_stride + head[:, None] * query_head_stride + dim[None, :]
    q = tl.load(query + at, mask=mine, other=0.0)
    before = kv_len - length + first  # the last key that the block's first token sees
    table = tables + sequence.to(tl.int64) * table_stride
    keys += kv_head * D
    values += kv_head * D
    peak, mass = tl.full([ROWS], NOTHING, tl.float32), tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    stop = tl.minimum(kv_len, before + TOKENS)
    clear = tl.minimum(stop, tl.maximum(before + 1, 0)) // TILE * TILE  # up to here every row sees every key
    last = before + row // G
    for tile in range(0, clear, TILE):
        peak, mass, total = _tile(
            q, peak, mass, total, keys, values, table, tile, stop, last, scale, page_stride, token_stride,
            D, WIDTH, PAGE, TILE, False,
        )  # fmt: skip
    for tile in range(clear, stop, TILE):
        peak, mass, total = _tile(
            q, peak, mass, total, keys, values, table, tile, stop, last, scale, page_stride, token_stride,
            D, WIDTH, PAGE, TILE, True,
        )  # fmt: skip
    total = total / tl.where(mass > 0, mass, 1.0)[:, None]
    at = position[:, None] * out_stride + head[:, None] * D + dim[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=mine)


@triton.jit(do_not_specialize=VARYING)
def paged_decode(
    query, keys, values, parts, weights, tables, kv_lens, scale,
    query_stride, query_head_stride, page_stride, token_stride, table_stride,
    G: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Program (decode, kv head, split): attention over one of SPLITS equal stretches of the keys, LEAST tiles or more.

    Writes the stretch's result and the logarithm of its mass; of an empty stretch only the latter, as NOTHING.
    """
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_len = tl.load(kv_lens + sequence)
    stretch = tl.maximum(tl.cdiv(tl.cdiv(kv_len, TILE), SPLITS), LEAST) * TILE
    start = split * stretch
    stop = tl.minimum(kv_len, start + stretch)
    row, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head = kv_head * G + row
    result = (sequence.to(tl.int64) * tl.num_programs(1) * G + head) * SPLITS + split
    if start >= stop:
        tl.store(weights + result, tl.full([ROWS], NOTHING, tl.float32), mask=row < G)
        return
    mine = (row < G)[:, None] & (dim < D)[None, :]
    at = sequence.to(tl.int64) * query_stride + head[:, None] * query_head_stride + dim[None, :]
    q = tl.load(query + at, mask=mine, other=0.0)
    table = tables + sequence.to(tl.int64) * table_stride
    keys += kv_head * D
    values += kv_head * D
    peak, mass = tl.full([ROWS], NOTHING, tl.float32), tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    last = tl.zeros([ROWS], tl.int32) + stop
    for tile in range(start, stop, TILE):
        peak, mass, total = _tile(
            q, peak, mass, total, keys, values, table, tile, stop, last, scale, page_stride, token_stride,
            D, WIDTH, PAGE, TILE, True,
        )  # fmt: skip
    tl.store(parts + result[:, None] * D + dim[None, :], total / mass[:, None], mask=mine)
    tl.store(weights + result, peak + tl.log2(mass), mask=row < G)


@triton.jit
def paged_decode_reduce(
    parts, weights, out, out_stride, D: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr
):  # fmt: skip
    """Program (decode, head): the stretches' results by weight; zeros where there is none."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    result = (sequence.to(tl.int64) * tl.num_programs(1) + head) * SPLITS
    split, dim = tl.arange(0, SPLITS), tl.arange(0, WIDTH)
    weight = tl.load(weights + result + split)
    there = weight > NOTHING
    weight = tl.where(there, tl.exp2(weight - tl.max(weight, 0)), 0.0)
    real = there[:, None] & (dim < D)[None, :]
    part = tl.load(parts + (result + split)[:, None] * D + dim[None, :], mask=real, other=0.0)
    mass = tl.sum(weight, 0)
    total = tl.sum(part * weight[:, None], 0) / tl.where(mass > 0, mass, 1.0)
    at = sequence.to(tl.int64) * out_stride + head * D + dim
    tl.store(out + at, total.to(out.dtype.element_ty), mask=dim < D)
