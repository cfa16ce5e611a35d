"""What one iteration costs by a profile, part by part, beside the floor that the device sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.beyond import Beyond
from sim.cost_model import NS_PER_MS, CostModel
from sim.floors import Floors
from sim.profiles import Profile

PARTS = ("host", "encode", "gemm", "prefill_attention", "decode_attention")


class Shape(NamedTuple):
    """An iteration: images of so many pre-merger tokens in one encoder call, prefill chunks, decodes."""

    images: Sequence[tuple[int, int]] = ()  # number, tokens of each
    chunks: Sequence[tuple[int, int]] = ()  # tokens, and those cached before them
    num_decodes: int = 0
    context: int = 0  # of each decode

    @property
    def frames(self) -> tuple[int, int]:
        """Sum and sum of squares of the encoder tokens."""
        return sum(n * s for n, s in self.images), sum(n * s * s for n, s in self.images)

    @property
    def tokens(self) -> int:
        """Of the language model."""
        return sum(chunk for chunk, _ in self.chunks) + self.num_decodes


class Price(NamedTuple):
    """Milliseconds; floors and efficiency only where the profile knows the device's peaks."""

    total: float
    parts: dict[str, float]
    floors: dict[str, float] | None
    outside: list[str]  # of the range of the timings: which figures, and how far

    @property
    def floor(self) -> float | None:
        return None if self.floors is None else sum(self.floors.values())


def price(profile: Profile, shape: Shape, corrected: bool = True) -> Price:
    """The total is the simulator's, in whole nanoseconds; `corrected=False` leaves out what the timings leave out."""
    cost, context = CostModel.from_profile(profile, corrected), shape.num_decodes * shape.context
    gemm, prefill, decode = cost.parts(shape.chunks, shape.num_decodes, context)
    encode = cost.encode(*shape.frames)
    nanoseconds = dict(zip(PARTS, (cost.host, encode, gemm, prefill, decode), strict=True))
    total = cost.host + encode + cost.compute(shape.chunks, shape.num_decodes, context)
    parts = {part: elapsed / NS_PER_MS for part, elapsed in nanoseconds.items()}
    return Price(total / NS_PER_MS, parts, _floors(profile, shape), _outside(profile, shape))


def _floors(profile: Profile, shape: Shape) -> dict[str, float] | None:
    if profile.roofline is None:
        return None
    floors = Floors(profile.roofline)
    return {
        "encode": floors.encode(*shape.frames),
        "gemm": floors.gemm(shape.tokens),
        "prefill_attention": floors.prefill_attention(shape.chunks),
        "decode_attention": floors.decode_attention(shape.num_decodes * shape.context),
    }


def _outside(profile: Profile, shape: Shape) -> list[str]:
    beyond = Beyond(profile.range)
    calls = [shape.frames] if shape.images else []
    beyond.iteration(calls, shape.chunks, shape.num_decodes, shape.num_decodes * shape.context)
    return beyond.places()
