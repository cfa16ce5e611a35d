"""Runs what a plan asks for on the device: the packed encoder, and one forward of the language model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from executor.assembly import Batch
from executor.encoder import encode
from executor.models import LoadedModel
from executor.options import Options
from executor.paged import Paged, PagedKV
from executor.rows import EncoderStorage, ItemStorage, RowStorage
from policies.encoder_cache import EncoderEntry
from policies.limits import Limits
from workloads.request import MultimodalItem


class Runner:
    """Model, keys and values, encoder rows: all memory that is there for the whole run."""

    def __init__(self, loaded: LoadedModel, limits: Limits, options: Options) -> None:
        """`limits` as resolved. Raises InputError where the device has no room."""
        self.loaded = loaded
        self.kv = PagedKV(loaded.shape, limits, loaded.device, loaded.dtype)
        self.storage = _storage(loaded, limits, options)
        self._language_model = loaded.model.model.language_model
        self._uses_kernels = loaded.device.type == "cuda"
        self.encoder_pool: Any = None  # of `executor.capture`, where the encoder shares the graphs' memory

    @torch.inference_mode()
    def encode(self, patches: list[Tensor], items: list[MultimodalItem], entries: list[EncoderEntry]) -> None:
        """Encode the items in one call and copy their rows to where the plan says."""
        pool = nullcontext() if self.encoder_pool is None else torch.cuda.use_mem_pool(self.encoder_pool)
        with pool:
            outputs = encode(self.loaded, patches, items)
        for entry, output in zip(entries, outputs, strict=True):  # out of the pool: replays overwrite what is in it
            self.storage.write(entry, output)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Logits [E, vocabulary] of the rows that give a token, in float32 or wider."""
        hidden = self.hidden(self.embeddings(batch), batch.positions, batch.paged)
        return self.logits(hidden[batch.emit])

    def embeddings(self, batch: Batch) -> Tensor:
        """[T, hidden]: of tokens, and at the prompt's placeholders of images."""
        embeddings: Tensor = self._language_model.embed_tokens(batch.token_ids)
        if batch.pieces:
            embeddings[batch.embed_at] = self.storage.read(batch.pieces)
        return embeddings

    def hidden(self, embeddings: Tensor, positions: Tensor, paged: Paged) -> Tensor:
        """[T, hidden] after the last layer; keys and values go into the pages on the way."""
        if self._uses_kernels and paged.kernel is None:
            from executor.triton_attention import prepare

            paged.kernel = prepare(paged, self.loaded.config.text_config.num_attention_heads)
        output = self._language_model(
            inputs_embeds=embeddings[None], position_ids=positions[:, None], use_cache=False, paged=paged
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Near ties are decided in float32 at least, as engines do."""
        logits: Tensor = self.loaded.model.lm_head(hidden)
        return logits if logits.dtype.itemsize >= 4 else logits.float()

    def encoder(self) -> Callable[[list[Tensor], list[MultimodalItem]], list[Tensor]]:
        """The encoder alone, for warming up and for timing."""
        return lambda patches, items: encode(self.loaded, patches, items)


def _storage(loaded: LoadedModel, limits: Limits, options: Options) -> EncoderStorage:
    if options.encoder_storage == "per_item":
        return ItemStorage()
    rows = limits.encoder_cache_rows
    width = loaded.shape.hidden_size * (1 + loaded.shape.num_deepstack)
    bounded = limits.release != "iteration"
    return RowStorage(rows if isinstance(rows, int) else None, width, loaded.device, loaded.dtype, bounded=bounded)
