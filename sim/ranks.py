"""Do two runs of the same variants put them in the same order? Kendall's tau, for each figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from sim.compare_free import Free


def kendall_tau(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Tau-b (Kendall, 1945): 1 where all pairs lie in the same order, -1 where none does; ties count for neither.

    None with fewer than two values, or where all of one side are equal.
    """
    signs = [
        (_sign(a - b), _sign(c - d)) for (a, c), (b, d) in itertools.combinations(zip(ours, theirs, strict=True), 2)
    ]
    untied = math.prod(sum(1 for pair in signs if pair[side]) for side in (0, 1))
    return sum(one * other for one, other in signs) / math.sqrt(untied) if untied else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def ranks(variants: Mapping[str, Free]) -> dict[str, float | None]:
    """For each figure that all variants have in both runs."""
    told: dict[str, float | None] = {}
    for name in next(iter(variants.values())).figures if len(variants) > 1 else ():
        pairs = [(f.simulated, f.measured) for free in variants.values() if (f := free.figures.get(name))]
        sound = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        if len(sound) == len(variants):
            told[name] = kendall_tau([ours for ours, _ in sound], [theirs for _, theirs in sound])
    return told
