"""Random packed batches on paged memory, and what attention must give for them: gathered keys, SDPA, float64."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from executor.paged import Paged


@dataclass(frozen=True)
class Heads:
    groups: int  # query heads of a kv head
    kv: int
    dim: int
    page: int  # tokens of a block


def random_batch(
    heads: Heads, chunks: list[tuple[int, int]], decodes: list[int], *, seed: int = 0, layers: int = 1,
    dtype: torch.dtype = torch.float32, device: str = "cpu", spare_blocks: int = 3,
) -> tuple[Tensor, Paged]:  # fmt: skip
    """Queries [T, heads, dim] and the memory of chunks (tokens, tokens in the cache with them) and decodes (as much).

    Blocks are scattered over the memory, what no sequence owns is NaN, and a length of 0 is a padding sequence.
    """
    draw = torch.Generator(device).manual_seed(seed)
    kv_lens = [kv for _, kv in chunks] + decodes
    counts = [-(-kv // heads.page) for kv in kv_lens]
    pages = list(range(1, sum(counts) + spare_blocks + 1))
    random.Random(seed).shuffle(pages)
    shape = (layers, len(pages) + 1, heads.page, heads.kv, heads.dim)
    keys, values = (torch.full(shape, torch.nan, dtype=dtype, device=device) for _ in range(2))
    tables = torch.zeros(len(kv_lens), max(counts) + spare_blocks, dtype=torch.int32)
    for row, (kv, count) in enumerate(zip(kv_lens, counts, strict=True)):
        mine = torch.tensor([pages.pop() for _ in range(count)], dtype=torch.int32)
        tables[row, :count] = mine
        slots = (mine.long()[:, None] * heads.page + torch.arange(heads.page)).flatten()[:kv].to(device)
        for memory in (keys, values):
            new = torch.randn(layers, kv, heads.kv, heads.dim, generator=draw, device=device)
            memory.view(layers, -1, heads.kv, heads.dim)[:, slots] = new.to(dtype)
    query_lens = [tokens for tokens, _ in chunks] + [1] * len(decodes)
    starts = torch.tensor([0, *query_lens]).cumsum(0).int()
    query = torch.randn(sum(query_lens), heads.kv * heads.groups, heads.dim, generator=draw, device=device).to(dtype)
    paged = Paged(
        keys, values, torch.zeros(len(query), dtype=torch.long, device=device), tables.to(device), starts.to(device),
        torch.tensor(kv_lens, dtype=torch.int32, device=device), query_lens, kv_lens, len(chunks),
    )  # fmt: skip
    return query, paged


def expected(query: Tensor, paged: Paged, layer: int, scaling: float) -> Tensor:
    """Every sequence by itself in float64; the last query sees all keys; zeros for a padding sequence."""
    out, start = torch.zeros(query.shape, dtype=torch.float64), 0
    groups = query.shape[1] // paged.keys.shape[3]
    for row, (length, kv) in enumerate(zip(paged.query_lens, paged.host_kv_lens, strict=True)):
        if kv:
            pages = paged.tables[row, : -(-kv // paged.keys.shape[2])].long()
            keys, values = (
                memory[layer, pages].flatten(0, 1)[:kv].double().cpu().repeat_interleave(groups, 1).transpose(0, 1)
                for memory in (paged.keys, paged.values)
            )
            seen = torch.arange(kv)[None] <= torch.arange(length)[:, None] + kv - length
            q = query[start : start + length].double().cpu().transpose(0, 1)
            result = scaled_dot_product_attention(q, keys, values, attn_mask=seen, scale=scaling)
            out[start : start + length] = result.transpose(0, 1)
        start += length
    return out
