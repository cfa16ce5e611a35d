"""Several verbs of the plan builder taken together or not at all."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policies.builder import PlanBuilder

NUMBERS = ("encoder_items_left", "encoder_tokens_left", "rows_left", "tokens_left", "free_blocks")


class Attempt:
    """Where a draft stood, to go back to. What was refused meanwhile stays written down, as it is still true."""

    def __init__(self, builder: PlanBuilder) -> None:
        plan = builder.plan
        self._builder = builder
        self._numbers = [getattr(builder, name) for name in NUMBERS]
        self._keys = (builder.claimed.copy(), builder.encoding.copy(), builder.reclaimed.copy())
        self._totals = (plan.encoder_tokens, plan.num_prefill_tokens)
        self._lengths = (len(plan.attached), len(plan.encode), len(plan.reclaimed), len(plan.prefill))

    def undo(self) -> None:
        """Back to where it began, with everything that was taken since given back."""
        builder, plan = self._builder, self._builder.plan
        attached, encode, reclaimed, prefill = self._lengths
        for request, index in (*plan.attached[attached:], *plan.encode[encode:]):
            insort(builder.missing(request), index)
        for request, index in plan.reclaimed[reclaimed:]:
            builder.missing(request).remove(index)
        del plan.attached[attached:], plan.encode[encode:], plan.reclaimed[reclaimed:], plan.prefill[prefill:]
        for name, number in zip(NUMBERS, self._numbers, strict=True):
            setattr(builder, name, number)
        builder.claimed, builder.encoding, builder.reclaimed = (keys.copy() for keys in self._keys)
        plan.encoder_tokens, plan.num_prefill_tokens = self._totals
