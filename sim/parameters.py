"""Counts what language models and vision towers are made of: parameters, and operations for a token or a pair."""

from __future__ import annotations

from typing import NamedTuple

FLOPS = 2  # of a multiplication and an addition


class Count(NamedTuple):
    """Parameters, by what tensor parallelism does with them."""

    sharded: int  # matrices, of which each rank has its part
    replicated: int  # norms, patch and position embeddings, biases added after the sum over ranks

    def of_rank(self, ranks: int) -> int:
        return self.sharded // ranks + self.replicated


class LanguageModel(NamedTuple):
    """A Qwen2 or Qwen3 of dense layers."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool  # the logits' matrix is that of the embeddings
    biased: bool  # queries, keys and values have biases; if not, queries and keys have norms (Qwen3)

    @property
    def _layer(self) -> int:
        """Entries of a layer's matrices."""
        projections = 2 * self.heads + 2 * self.kv_heads  # query and output, key and value
        return self.hidden * (projections * self.head_dim + 3 * self.mlp)

    @property
    def parameters(self) -> Count:
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.biased else 0
        norms = 2 * self.hidden + (0 if self.biased else 2 * self.head_dim)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return Count(embeddings + self.layers * (self._layer + biases), self.layers * norms + self.hidden)

    @property
    def read(self) -> int:
        """Parameters that every iteration reads: all but the embeddings, of which it reads a few rows."""
        return self.layers * self._layer + self.vocabulary * self.hidden

    @property
    def token_flops(self) -> int:
        """Of the layers' matrices; logits are of few tokens."""
        return FLOPS * self.layers * self._layer

    @property
    def pair_flops(self) -> int:
        """Of a query with a key: their product, and the value's share."""
        return 2 * FLOPS * self.layers * self.heads * self.head_dim


class VisionTower(NamedTuple):
    """A vision transformer with the projectors that merge patches into embeddings."""

    hidden: int
    depth: int
    heads: int
    mlp: int
    patch: int
    projector: tuple[int, int]  # merged patches, embedding
    num_projectors: int = 1
    positions: int = 0  # learned ones
    patch_biased: bool = False
    gated: bool = False  # the MLP has a gate, and norms have no bias (Qwen2.5-VL)
    windowed: int = 0  # layers that attend within windows of 64 patches only

    @property
    def mlp_width(self) -> int:
        """Half of what an MLP holds at a time, before and after its activation; a gate is as much again before it."""
        return self.mlp * 3 // 2 if self.gated else self.mlp

    @property
    def num_norms(self) -> int:
        """Vectors as wide as a patch: a norm's weight, and its bias if it has one."""
        return 1 if self.gated else 2

    @property
    def parameters(self) -> Count:
        h, (merged, out), wide = self.hidden, self.projector, self.mlp * (2 if self.gated else 1)
        matrices = 4 * h * h + wide * h + self.mlp * h + 3 * h + wide  # and biases of what is cut along its outputs
        projectors = self.num_projectors * (merged * merged + merged * out + merged)
        patches = 3 * 2 * self.patch**2 * h + (h if self.patch_biased else 0) + self.positions * h
        norms = self.depth * self.num_norms * 2 * h + self._projector_norms
        biases = self.depth * 2 * h + self.num_projectors * out
        return Count(self.depth * matrices + projectors, patches + norms + biases)

    @property
    def _projector_norms(self) -> int:
        """The first projector's before patches are merged, the others' (deepstack) after."""
        return self.num_norms * (self.hidden + (self.num_projectors - 1) * self.projector[0])

    @property
    def token_flops(self) -> int:
        """Of a patch before merging; four are merged into one for the projector. Windows count here."""
        h, (merged, out) = self.hidden, self.projector
        matrices = 4 * h * h + (3 if self.gated else 2) * self.mlp * h
        projectors = self.num_projectors * (merged * merged + merged * out) // 4
        return FLOPS * (self.depth * matrices + projectors) + 2 * FLOPS * h * 64 * self.windowed

    @property
    def pair_flops(self) -> int:
        """Of two patches of one frame, in the layers that attend to all of it."""
        return 2 * FLOPS * (self.depth - self.windowed) * self.hidden
