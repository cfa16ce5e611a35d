"""The images and videos of a request: how many, how large, unique or drawn from a shared pool."""

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import Fixed, Lengths
from workloads.frozen import CHUNK, Frozen
from workloads.models import VisionLanguageModel
from workloads.request import Modality, MultimodalItem
from workloads.sizes import Sizes
from workloads.streams import stream
from workloads.workload import span

MAX_PICTURES = 10_000  # of one sort in a request
MAX_FRAMES = 100_000  # of a video: about an hour
BLOCK = 64  # pictures of a pool that are drawn together, when one of them is first asked for


class Picture(NamedTuple):
    """An image or video before a model has seen it."""

    key: str | None
    modality: Modality
    width: int
    height: int
    frames: int


class Pool(Frozen):
    """Pictures that requests share, so that content keys repeat."""

    size: Annotated[int, Field(gt=0, le=1_000_000_000)]
    draw: Literal["random", "all_in_order"] = "random"  # any ones, or the first `count` in every request


class ImageGroup(Frozen):
    """Pictures of one sort in every request: `count` of them, each with its own size."""

    modality: Modality = "image"
    count: Lengths = Fixed(value=1)
    size: Sizes
    frames: Lengths | None = None  # of a video
    pool: Pool | None = None  # without one, every picture is unique
    content_keys: bool = True  # False: the client sends no hashes, and nothing can be recognized again

    @model_validator(mode="after")
    def _consistent(self) -> "ImageGroup":
        if (self.modality == "video") != (self.frames is not None):
            raise ValueError("videos need frames, images have none")
        if self.frames is not None and self.frames.smallest() < 1:
            raise ValueError("a video needs at least one frame")
        if self.frames is not None and self.frames.largest() > MAX_FRAMES:
            raise ValueError(f"frames can reach {self.frames.largest()}; a video has at most {MAX_FRAMES}")
        if self.count.largest() > MAX_PICTURES:
            raise ValueError(f"count can reach {self.count.largest()}; a request has at most {MAX_PICTURES} of a sort")
        if self.pool and self.pool.draw == "all_in_order" and self.count.largest() > self.pool.size:
            raise ValueError(f"count can reach {self.count.largest()}, but the pool has {self.pool.size} pictures")
        return self

    def largest_item(self, model: VisionLanguageModel) -> MultimodalItem | None:
        """The most expensive picture that can be drawn."""
        if self.count.largest() == 0:
            return None
        frames = self.frames.largest() if self.frames else 1
        return model.item(None, self.modality, *self.size.largest(model), frames)

    def pictures(self, seed: int, name: str) -> Iterator[list[Picture]]:
        """One list per request, without end. `name` sets the group apart from all others under the seed.

        Keys are spelled out, not hashed: they cannot collide.
        """
        rng, prefix = stream(seed, name, "count"), f"{self.modality}/{seed}/{name}"
        counts = itertools.chain.from_iterable(self.count.draw(rng, CHUNK).tolist() for _ in itertools.count())
        if self.pool is None:
            contents = self._contents(seed, name)
            for request, count in enumerate(counts):
                keys = [f"{prefix}/{request}/{index}" for index in range(count)]
                yield [self._picture(key, content) for key, content in zip(keys, contents, strict=False)]
        else:
            yield from self._pooled(self.pool, counts, seed, name, prefix)

    def _pooled(self, pool: Pool, counts: Iterator[int], seed: int, name: str, prefix: str) -> Iterator[list[Picture]]:
        picture = self._pool(seed, name, prefix)
        if pool.draw == "all_in_order":
            yield from ([picture(index) for index in range(count)] for count in counts)
        else:
            picks = self._picks(pool.size, stream(seed, name, "pool"))
            yield from ([picture(pick) for pick in itertools.islice(picks, count)] for count in counts)

    def _pool(self, seed: int, name: str, prefix: str) -> Callable[[int], Picture]:
        """The pool's picture at an index, the same whenever it is asked for; a pool's size costs nothing."""

        @lru_cache(maxsize=CHUNK)
        def block(number: int) -> list[Picture]:
            sizes, lengths = stream(seed, name, "size", number), stream(seed, name, "frames", number)
            contents = enumerate(self._drawn(sizes, lengths, BLOCK), start=number * BLOCK)
            return [self._picture(f"{prefix}/pool/{index}", content) for index, content in contents]

        return lambda index: block(index // BLOCK)[index % BLOCK]

    @staticmethod
    def _picks(size: int, rng: np.random.Generator) -> Iterator[int]:
        while True:
            yield from rng.integers(size, size=CHUNK).tolist()

    def _contents(self, seed: int, name: str) -> Iterator[tuple[int, int, int]]:
        """Width, height and frames, without end."""
        sizes, lengths = stream(seed, name, "size"), stream(seed, name, "frames")
        while True:
            yield from self._drawn(sizes, lengths, CHUNK)

    def _drawn(
        self, sizes: np.random.Generator, lengths: np.random.Generator, n: int
    ) -> Iterator[tuple[int, int, int]]:
        frames = self.frames or Fixed(value=1)
        return map(tuple, np.column_stack([self.size.draw(sizes, n), frames.draw(lengths, n)]).tolist())

    def _picture(self, key: str, content: tuple[int, int, int]) -> Picture:
        return Picture(key if self.content_keys else None, self.modality, *content)


def place(
    pictures: list[Picture], text_tokens: int, model: VisionLanguageModel, placement: Literal["front", "spread"]
) -> tuple[MultimodalItem, ...]:
    """Items in prompt order, before the text or evenly spread in it, each between its two delimiters."""
    items, seen = [], 0
    for index, picture in enumerate(pictures, start=1):
        text = text_tokens * index // (len(pictures) + 1) if placement == "spread" else 0
        item = model.item(*picture, offset=text + seen + 1)  # after its start delimiter
        items.append(item)
        seen += span(item)
    return tuple(items)
