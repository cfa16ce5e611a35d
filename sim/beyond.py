"""Iterations priced outside the range of a profile's timings: how many, and how far outside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.figures import Range, Span
from sim.iteration_log import IterationLog

Ints = NDArray[np.int64]
Pairs = Sequence[tuple[int, int]]

NAMES = {  # of the figures of a range, as a message calls them
    "images": "images of an encoder call",
    "encoder_tokens_per_image": "encoder tokens of an image",
    "encoder_tokens": "encoder tokens of a call",
    "chunk": "tokens prefilled",
    "cached": "tokens cached before a chunk",
    "decodes": "decodes",
    "context_per_decode": "context of a decode",
}


class Beyond:
    """Counts them; frames of one call, and decodes of one iteration, count by their means."""

    def __init__(self, timed: Range) -> None:
        self.timed = timed
        self.num_iterations = 0
        self.least: dict[str, float] = {}  # what lay lowest, of what lay below its span
        self.most: dict[str, float] = {}  # what lay highest, of what lay above
        (_, self._most_images), (self._least_size, self._most_size) = timed.images, timed.encoder_tokens_per_image
        self._least_call, self._most_call = timed.encoder_tokens or (0, self._most_images * self._most_size)
        (self._least_chunk, self._most_chunk), self._most_cached = timed.chunk, timed.cached[1]
        self._few, self._many = timed.decodes
        self._least_context, self._most_context = timed.context_per_decode
        self._contexts: dict[int, tuple[float, float]] = {0: (0, 0)}  # summed ones inside, by the number of decodes

    def iteration(self, calls: Pairs, chunks: Pairs, num_decodes: int, context_tokens: int) -> None:
        """One that encodes or prefills: calls as sum and sum of squares of frames, chunks with what is cached.

        As quickly as can be told: the loop waits for it.
        """
        if len(chunks) == 1 and not calls:
            ((prefilled, cached),) = chunks
            least, most = self._contexts.get(num_decodes) or self._of_decodes(num_decodes)
            inside = self._least_chunk <= prefilled <= self._most_chunk and cached <= self._most_cached
            if inside and least <= context_tokens <= most:
                return
        if not self._inside(calls, chunks, num_decodes, context_tokens):
            self._count(calls, chunks, num_decodes, context_tokens)

    def _inside(self, calls: Pairs, chunks: Pairs, num_decodes: int, context_tokens: int) -> bool:
        prefilled, cached = sum(chunk for chunk, _ in chunks), max((before for _, before in chunks), default=0)
        if cached > self._most_cached or (prefilled and not self._least_chunk <= prefilled <= self._most_chunk):
            return False
        least, most = self._contexts.get(num_decodes) or self._of_decodes(num_decodes)
        return (not num_decodes or least <= context_tokens <= most) and self._encoding_inside(calls)

    def _of_decodes(self, num_decodes: int) -> tuple[float, float]:
        """Between which contexts of so many decodes sum to something inside; between none if they are too many."""
        least, most = self._least_context * num_decodes, self._most_context * num_decodes
        span = (least, most) if self._few <= num_decodes <= self._many else (math.inf, 0.0)
        return self._contexts.setdefault(num_decodes, span)

    def _encoding_inside(self, calls: Pairs) -> bool:
        for tokens, squares in calls:
            if not (self._least_size * tokens <= squares <= self._most_size * tokens and tokens <= self._most_call):
                return False
            if tokens < self._least_call or tokens * tokens > self._most_images * squares:
                return False
        return True

    def _count(self, calls: Pairs, chunks: Pairs, num_decodes: int, context_tokens: int) -> None:
        outside = False
        for tokens, squares in calls:
            outside |= self._encodes(tokens, squares)
        if chunks:
            outside |= self._saw("chunk", self.timed.chunk, sum(tokens for tokens, _ in chunks))
            outside |= self._saw("cached", self.timed.cached, max(cached for _, cached in chunks))
        if num_decodes:
            outside |= self._saw("decodes", self.timed.decodes, num_decodes)
            outside |= self._saw("context_per_decode", self.timed.context_per_decode, context_tokens / num_decodes)
        self.num_iterations += outside

    def decodes(self, counts: Ints, num_decodes: Ints, context_tokens: Ints) -> None:
        """Runs of so many iterations of decodes alone, each context growing by one token in each."""
        if not len(counts):
            return
        least, most = (num_decodes * end for end in self.timed.context_per_decode)
        first = np.maximum(0, -((context_tokens - least) // num_decodes))
        last = np.minimum(counts - 1, (most - context_tokens) // num_decodes)
        few, many = self.timed.decodes
        inside = np.where((few <= num_decodes) & (num_decodes <= many), np.maximum(0, last - first + 1), 0)
        self.num_iterations += int((counts - inside).sum())
        contexts = context_tokens / num_decodes
        for name, low, high in (
            ("decodes", num_decodes, num_decodes),
            ("context_per_decode", contexts, contexts + counts - 1),
        ):
            self._saw(name, getattr(self.timed, name), float(low.min()))
            self._saw(name, getattr(self.timed, name), float(high.max()))

    def add(self, other: Beyond) -> None:
        """What another one of the same range has seen."""
        self.num_iterations += other.num_iterations
        for name, value in other.least.items():
            self.least[name] = min(value, self.least.get(name, value))
        for name, value in other.most.items():
            self.most[name] = max(value, self.most.get(name, value))

    def places(self) -> list[str]:
        """`decodes up to 400 (timed: 1 to 256)`, of each figure that lay outside."""
        low = [self._place(name, f"from {value:,.0f}") for name, value in self.least.items()]
        return low + [self._place(name, f"up to {value:,.0f}") for name, value in self.most.items()]

    def _place(self, name: str, far: str) -> str:
        least, most = getattr(self.timed, name)
        return f"{NAMES[name]} {far} (timed: {least:,} to {most:,})"

    def _encodes(self, tokens: int, squares: int) -> bool:
        outside = self._saw("images", self.timed.images, tokens * tokens / squares)
        outside |= self._saw("encoder_tokens_per_image", self.timed.encoder_tokens_per_image, squares / tokens)
        if self.timed.encoder_tokens is not None:
            outside |= self._saw("encoder_tokens", self.timed.encoder_tokens, tokens)
        return outside

    def _saw(self, name: str, span: Span, value: float) -> bool:
        least, most = span
        if least <= value <= most:
            return False
        if value < least:
            self.least[name] = min(value, self.least.get(name, value))
        else:
            self.most[name] = max(value, self.most.get(name, value))
        return True


def priced_outside(priced: Iterable[tuple[str, Beyond, IterationLog]]) -> list[str]:
    """A line for each profile beyond whose timings some iterations lay, of those that its engines ran."""
    together: dict[str, tuple[Beyond, int]] = {}
    for profile, beyond, log in priced:
        for entries in log.decodes_alone():
            beyond.decodes(*entries)
        seen, number = together.get(profile, (Beyond(beyond.timed), 0))
        seen.add(beyond)
        together[profile] = seen, number + log.num_iterations
    return [_line(profile, *seen) for profile, seen in together.items() if seen[0].num_iterations]


def _line(profile: str, beyond: Beyond, num_iterations: int) -> str:
    outside = f"{beyond.num_iterations:,} of {num_iterations:,} iterations priced outside the timings of {profile}"
    return f"{outside}: {'; '.join(beyond.places())}"
