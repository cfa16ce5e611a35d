"""The two attention functions through which transformers' own Qwen2-VL runs on paged memory and packed images.

On CUDA the text's is a Triton kernel; on CPU gathered pages and SDPA, which is also what the kernels are tested by.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from executor.paged import Paged

# A vision name with "flash" in it gets all images in one call with their boundaries; any other name is called once an
# image, and reads the boundaries back from the device in every layer.
ATTENTION = {"text_config": "tandem_paged", "vision_config": "tandem_flash_varlen"}


def paged_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, paged: Paged, **_: Any
) -> tuple[Tensor, None]:
    """[1, heads, T, head_dim] of packed tokens; writes the cache, then attends to it."""
    q, k, v = (packed[0].transpose(0, 1) for packed in (query, key, value))
    paged.write(module.layer_idx, k, v)
    if paged.kernel is not None:
        from executor.triton_attention import attend

        return attend(q, paged, module.layer_idx, scaling)[None], None
    return gathered_attention(q, paged, module.layer_idx, scaling)[None], None


def gathered_attention(query: Tensor, paged: Paged, layer: int, scaling: float) -> Tensor:
    """[T, heads, head_dim]: every chunk by itself, all decodes together."""
    out, start = torch.empty_like(query), 0
    for sequence in range(paged.num_chunks):
        length = paged.query_lens[sequence]
        chunk = query[start : start + length]
        out[start : start + length] = _chunk(chunk, paged, layer, sequence, scaling)
        start += length
    if start < len(query):
        out[start:] = _decodes(query[start:], paged, layer, scaling)
    return out


def _chunk(query: Tensor, paged: Paged, layer: int, sequence: int, scaling: float) -> Tensor:
    """Query j of the last n tokens sees all keys but the last n - 1 - j."""
    n, size = len(query), paged.host_kv_lens[sequence]
    pages = paged.tables[sequence, : -(-size // paged.keys.shape[2])]
    keys, values = (
        cache[layer][pages].flatten(0, 1)[:size].transpose(0, 1)[None] for cache in (paged.keys, paged.values)
    )
    q = query.transpose(0, 1)[None]
    mask = causal_mask(n, size, query.device)
    attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scaling, enable_gqa=True)
    return attended[0].transpose(0, 1)


def causal_mask(n: int, size: int, device: torch.device) -> Tensor:
    """[n, size] for the last n of so many tokens: aligned at the bottom right."""
    return torch.ones(n, size, dtype=torch.bool, device=device).tril(size - n)


def _decodes(query: Tensor, paged: Paged, layer: int, scaling: float) -> Tensor:
    """One token a sequence: a group of query heads stands in for the query axis, so keys are not repeated."""
    tables = paged.tables[paged.num_chunks :]
    batch, heads, dim = query.shape
    keys, values = (cache[layer][tables].flatten(1, 2).transpose(1, 2) for cache in (paged.keys, paged.values))
    if paged.mask is None:
        # a padding sequence sees one token of the padding page: seeing none would give NaN, and that would spread
        lengths = paged.kv_lens[paged.num_chunks :, None].clamp(min=1)
        paged.mask = (torch.arange(keys.shape[2], device=query.device) < lengths)[:, None, None]
    q = query.view(batch, keys.shape[1], -1, dim)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=paged.mask, scale=scaling).reshape(
        batch, heads, dim
    )


def packed_vision_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    **_: Any,
) -> tuple[Tensor, None]:
    """[1, heads, patches, head_dim] of packed frames; a frame attends to itself alone."""
    assert cu_seq_lens_q is not None, "the encoder passes the boundaries of its frames"
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (packed[0].transpose(0, 1) for packed in (query, key, value))
        starts = cu_seq_lens_q
        return varlen_attn(q, k, v, starts, starts, max_length_q, max_length_q, scale=scaling)[None], None
    lengths = (cu_seq_lens_q[1:] - cu_seq_lens_q[:-1]).tolist()
    frames = zip(*(packed.split(lengths, dim=2) for packed in (query, key, value)), strict=True)
    parts = [F.scaled_dot_product_attention(q, k, v, scale=scaling) for q, k, v in frames]
    return torch.cat(parts, dim=2).transpose(1, 2), None


# Neither is registered as a mask function: for a name that it does not know, transformers builds no mask at all.
ALL_ATTENTION_FUNCTIONS.register(ATTENTION["text_config"], paged_attention)
ALL_ATTENTION_FUNCTIONS.register(ATTENTION["vision_config"], packed_vision_attention)
