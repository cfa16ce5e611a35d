"""Shapes of iterations to be timed: one each, or a grid of them that suits a model and its device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from workloads.models import VisionLanguageModel

Grid = tuple[int, int, int]  # frames, height and width in patches

STAGES = ("encoder", "prefill", "decode", "mixed")
MOST_ENCODER_TOKENS = 65_536  # of one call
MOST_CONTEXT_TOKENS = 524_288  # of all decodes together


@dataclass(frozen=True)
class Shape:
    """All that an iteration's time depends on: the encoder's items, or the language model's chunks and decodes."""

    items: tuple[Grid, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()  # (tokens, tokens cached before them)
    contexts: tuple[int, ...] = ()  # of each decode, its new token included
    rows: int = 0  # encoder outputs that stand in the chunks, first in the batch
    before: tuple[Grid, ...] = ()  # encoded just before, which leaves the processor's caches full of other things

    @property
    def stage(self) -> str:
        if self.items:
            return "encoder"
        if self.chunks:
            return "mixed" if self.contexts else "prefill"
        return "decode"

    @property
    def totals(self) -> list[int]:
        """Tokens in the KV cache of each sequence once the iteration is done, chunks first."""
        return [tokens + cached for tokens, cached in self.chunks] + list(self.contexts)

    def counts(self) -> dict[str, int]:
        """The shape in the columns of a CSV of timings.

        Several chunks stand as one, with the prompt in the middle of which a query attends to as much on average.
        """
        tokens, cached, prompt = self._chunk()
        return {
            "images": len(self.items),
            "tokens": _mean([frames * height * width for frames, height, width in self.items]),
            "chunk": tokens,
            "cached": cached,
            "prompt": prompt,
            "decodes": len(self.contexts),
            "context": _mean(self.contexts),
        }

    def _chunk(self) -> tuple[int, int, int]:
        if len(self.chunks) <= 1:
            return (*(self.chunks or [(0, 0)])[0], 0)
        tokens = sum(chunk for chunk, _ in self.chunks)
        return tokens, 0, round(sum(chunk * (2 * cached + chunk) for chunk, cached in self.chunks) / tokens)


def _mean(values: Iterable[int]) -> int:
    listed = list(values)
    return round(sum(listed) / len(listed)) if listed else 0


class Grids(NamedTuple):
    """Values of each coordinate; `shapes` takes all their combinations, within bounds."""

    sides: tuple[int, ...]  # of square images, in pixels
    images: tuple[int, ...]  # of one call
    chunks: tuple[int, ...]
    cached: tuple[int, ...]
    decodes: tuple[int, ...]
    contexts: tuple[int, ...]
    mixed_chunks: tuple[int, ...]
    mixed_decodes: tuple[int, ...]
    mixed_contexts: tuple[int, ...]

    def shapes(self, model: VisionLanguageModel) -> list[Shape]:
        grids = [model.item(None, "image", side, side).grid for side in self.sides]
        encoder = (Shape(items=(grid,) * count) for grid, count in itertools.product(grids, self.images))
        prefill = (_chunk(chunk, cached) for chunk, cached in itertools.product(self.chunks, self.cached))
        decode = (Shape(contexts=(c,) * count) for count, c in itertools.product(self.decodes, self.contexts))
        return [shape for shape in (*encoder, *prefill, *decode, *self._mixed()) if _bounded(shape)]

    def _mixed(self) -> Iterator[Shape]:
        values = itertools.product(self.mixed_chunks, self.mixed_decodes, self.mixed_contexts)
        for chunk, decodes, context in values:
            for cached in (0, context):
                yield _chunk(chunk, cached, (context,) * decodes)


def _chunk(tokens: int, cached: int, contexts: tuple[int, ...] = ()) -> Shape:
    """Half of it an image's rows."""
    return Shape(chunks=((tokens, cached),), contexts=contexts, rows=tokens // 2)


def _bounded(shape: Shape) -> bool:
    tokens = sum(frames * height * width for frames, height, width in shape.items)
    return tokens <= MOST_ENCODER_TOKENS and sum(shape.totals) <= MOST_CONTEXT_TOKENS


QUICK = Grids(
    (56, 112, 224), (1, 3), (16, 64, 160), (0, 128), (1, 4, 12), (48, 192), (16, 64), (2, 8), (64, 160)
)  # fmt: skip
ON_CPU = Grids(
    (56, 112, 168, 224, 336),
    (1, 2, 4),
    (16, 32, 64, 128, 256),
    (0, 64, 256),
    (1, 2, 4, 8, 16, 32),
    (32, 96, 256, 512),
    (16, 64, 192),
    (2, 8, 16),
    (64, 256),
)
QUICK_ON_CUDA = Grids(
    (224, 560, 1120), (1, 4), (128, 1024, 4096), (0, 2048), (1, 8, 64), (512, 4096), (256, 1024), (8, 32), (1024,)
)  # fmt: skip
ON_CUDA = Grids(
    (112, 224, 448, 896, 1344, 1792),
    (1, 2, 4, 8, 16),
    (64, 256, 512, 1024, 2048, 4096, 8192),
    (0, 1024, 4096, 16_384),
    (1, 2, 4, 8, 16, 32, 64, 128),
    (128, 1024, 4096, 16_384),
    (128, 512, 2048),
    (8, 32, 64),
    (512, 4096),
)


def grid_for(model: VisionLanguageModel, *, on_cuda: bool, quick: bool) -> list[Shape]:
    """Every stage from small to large: what a device of that kind serves in a second or less an iteration."""
    grids = {
        (False, False): ON_CPU,
        (False, True): QUICK,
        (True, False): ON_CUDA,
        (True, True): QUICK_ON_CUDA,
    }
    return list(dict.fromkeys(grids[on_cuda, quick].shapes(model)))
