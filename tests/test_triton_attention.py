"""What the attention kernels are launched with: blocks of queries, and splits of contexts."""

import random

import pytest

pytest.importorskip("torch", reason="the live half needs torch")
pytest.importorskip("triton", reason="no Triton for this platform: its kernels cannot be tested here")

import torch
from paged_batches import Heads, random_batch

from executor.triton_attention import chunk_shape, num_splits, prepare, query_blocks


@pytest.mark.parametrize("seed", range(20))
def test_blocks_cover_every_query_token_once(seed):
    draw = random.Random(seed)
    lengths = [draw.choice([0, 1, draw.randrange(1, 60)]) for _ in range(draw.randrange(1, 9))]
    per_block = draw.randrange(1, 20)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    sequences, firsts = query_blocks(starts, sum(lengths), per_block)
    blocks = [(s, f) for s, f in zip(sequences.tolist(), firsts.tolist(), strict=True) if f >= 0]
    covered = [(s, token) for s, first in blocks for token in range(first, min(first + per_block, lengths[s]))]
    assert covered == [(s, token) for s, length in enumerate(lengths) for token in range(length)]
    assert sequences.dtype == firsts.dtype == torch.int32
    assert set(sequences.tolist()) <= set(range(len(lengths)))  # padding blocks too name a sequence that there is


def test_number_of_blocks_depends_on_shapes_only():
    for lengths in ([40, 0, 0], [1, 1, 38], [13, 13, 14]):
        sequences, _ = query_blocks(torch.tensor([0, *lengths]).cumsum(0).int(), 40, 9)
        assert len(sequences) == 40 // 9 + 3


@pytest.mark.parametrize("programs", [1, 4, 64, 1024])
@pytest.mark.parametrize("context", [1, 64, 5000, 131_072])
def test_splits_fill_the_gpu_and_none_is_too_long(programs, context):
    splits, least = num_splits(programs, context, 64, 132)
    assert splits in (1, 2, 4, 8, 16, 32, 64) and least in (1, 4)
    assert programs * splits >= min(132, programs * min(-(-context // 64), 64))
    assert context <= 4096 * splits or splits == 64


def test_few_queries_get_small_blocks():
    small, large = (chunk_shape(7, 128, torch.bfloat16, tokens * 4, 132) for tokens in (128, 8192))
    assert small.rows == 64 and large.rows == 128
    assert chunk_shape(71, 64, torch.bfloat16, 10, 132).rows == 128  # a whole group at least


def test_decodes_alone_have_no_blocks_and_chunks_no_parts():
    heads = Heads(2, 2, 16, 4)
    _, paged = random_batch(heads, [], [5, 9])
    assert len(prepare(paged, 4).block_firsts) == 0 and prepare(paged, 4).chunk_tokens == 0
    _, paged = random_batch(heads, [(3, 7)], [])
    assert prepare(paged, 4).parts.numel() == 0 and prepare(paged, 4).chunk_tokens == 3


def test_float64_is_refused():
    _, paged = random_batch(Heads(2, 2, 16, 4), [], [5], dtype=torch.float64)
    with pytest.raises(TypeError, match=r"take torch\.bfloat16, torch\.float16, torch\.float32, not torch\.float64"):
        prepare(paged, 4)
