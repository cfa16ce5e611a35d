"""Batches that no plan asked for: they warm the device up and show what the largest ones need in memory."""

from __future__ import annotations

import numpy as np
import torch

from executor.paged import Paged
from executor.runner import Runner
from policies.limits import Limits
from workloads.models import VisionLanguageModel
from workloads.request import MultimodalItem

SOME = 256  # tokens: on a CPU, where the first calls cost more and the largest ones take long


def warm_up(runner: Runner, limits: Limits, largest: MultimodalItem | None) -> None:
    """One iteration's budgets at once (TensorRT-LLM profiles this batch too); on a CPU a small batch."""
    on_cuda = runner.loaded.device.type == "cuda"
    if largest is not None:
        encode_boundary(runner, limits, largest) if on_cuda else encode_items(runner, largest, 1)
    tokens = limits.max_num_batched_tokens if on_cuda else min(SOME, limits.max_num_batched_tokens)
    prefill_tokens(runner, tokens)
    decode_tokens(runner, min(limits.max_num_seqs, tokens))


def encode_boundary(runner: Runner, limits: Limits, largest: MultimodalItem) -> None:
    """As many of the scenario's largest items as the encoder's budgets let through in one iteration.

    One where nothing bounds them: engines of before there were budgets did not profile the encoder.
    """
    tokens, items = limits.encoder_max_num_tokens, limits.encoder_max_num_items
    bounds = [tokens // limits.encoder_cost(largest)] if isinstance(tokens, int) else []
    bounds += [items] if isinstance(items, int) else []
    encode_items(runner, largest, max(1, min(bounds, default=1)))


@torch.inference_mode()
def encode_items(runner: Runner, item: MultimodalItem, count: int) -> None:
    """The encoder alone: nothing is kept."""
    runner.encoder()([patches_like(runner, item)] * count, [item] * count)


def patches_like(runner: Runner, item: MultimodalItem) -> torch.Tensor:
    """Pixels of that size: which ones does not matter to the time they take."""
    vision, loaded = runner.loaded.config.vision_config, runner.loaded
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return torch.full((item.encoder_tokens, width), 0.5, dtype=loaded.dtype, device=loaded.device)


def prefill_tokens(runner: Runner, chunk: int, cached: int = 0) -> None:
    """One chunk of a prompt of which so much is cached."""
    forward(runner, [(chunk, cached)], [])


def decode_tokens(runner: Runner, batch: int, context: int = 1) -> None:
    forward(runner, [], [context] * batch)


@torch.inference_mode()
def forward(runner: Runner, chunks: list[tuple[int, int]], contexts: list[int]) -> torch.Tensor:
    """Tokens of chunks (tokens, cached) and decodes (contexts, with the new token), on the padding page."""
    lengths = [tokens for tokens, _ in chunks] + [1] * len(contexts)
    totals = [tokens + cached for tokens, cached in chunks] + contexts
    paged = padding_paged(runner, lengths, totals, len(chunks))
    ids = torch.zeros(sum(lengths), dtype=torch.int64, device=runner.loaded.device)
    positions = torch.zeros((3, sum(lengths)), dtype=torch.int64, device=runner.loaded.device)
    embeddings = runner._language_model.embed_tokens(ids)
    emits = paged.query_starts[1:].long() - 1
    return runner.logits(runner.hidden(embeddings, positions, paged)[emits]).argmax(-1)


def padding_paged(runner: Runner, lengths: list[int], totals: list[int], num_chunks: int) -> Paged:
    """Every block is the padding page, which nobody reads from: its content may be anything."""
    kv, device = runner.kv, runner.loaded.device
    blocks = -(-max(totals) // kv.block_size)
    return Paged(
        keys=kv.keys,
        values=kv.values,
        slots=torch.zeros(sum(lengths), dtype=torch.int64, device=device),
        tables=torch.zeros((len(lengths), blocks), dtype=torch.int32, device=device),
        query_starts=torch.as_tensor(np.cumsum([0, *lengths]), dtype=torch.int32).to(device),
        kv_lens=torch.tensor(totals, dtype=torch.int32, device=device),
        query_lens=lengths,
        host_kv_lens=totals,
        num_chunks=num_chunks,
    )


def item_of(model: VisionLanguageModel, width: int, height: int) -> MultimodalItem:
    """An image of that size."""
    return model.item(None, "image", width, height)
