"""The vision encoder on packed frames: one call for all items of an iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from executor.models import LoadedModel
from workloads.request import MultimodalItem


def encode(loaded: LoadedModel, patches: list[Tensor], items: list[MultimodalItem]) -> list[Tensor]:
    """Output rows of each item, [embeds, hidden], as views of one batch: copy what is to be kept."""
    device = loaded.device
    frames = [height * width for n, height, width in (item.grid for item in items) for _ in range(n)]
    starts = torch.tensor([0, *frames]).cumsum(0).to(device, torch.int32)
    grids = torch.tensor([item.grid for item in items], device=device)
    # boundaries and the longest frame are handed over, or the encoder would read them back from the device
    output = loaded.model.model.visual(
        torch.cat(patches), grid_thw=grids, cu_seqlens=starts, max_seqlen=max(frames)
    ).pooler_output
    return list(output.split([item.embeds for item in items]))
