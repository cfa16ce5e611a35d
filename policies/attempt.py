"""Where a draft stood, to go back to it."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policies.together import Together

NUMBERS = ("encoder_items_left", "encoder_tokens_left", "rows_left", "tokens_left", "free_blocks")
KEYS = ("_claims", "_dropped", "_encoding")


class Attempt:
    """Items attached, encoded and reclaimed and chunks planned since then can be undone together.

    What was refused meanwhile stays written down, as it is still true.
    """

    def __init__(self, builder: Together) -> None:
        plan = builder.plan
        self._builder = builder
        self._numbers = {name: getattr(builder, name) for name in NUMBERS}
        self._keys = {name: getattr(builder, name).copy() for name in KEYS}
        self._totals = (plan.encoder_tokens, plan.num_prefill_tokens)
        self._lengths = (len(plan.attached), len(plan.encode), len(plan.reclaimed), len(plan.prefill))

    def undo(self) -> None:
        """Back to where it began, with everything that was taken since given back. Once only."""
        builder, plan = self._builder, self._builder.plan
        attached, encode, reclaimed, prefill = self._lengths
        for request, index in (*plan.attached[attached:], *plan.encode[encode:]):
            insort(builder.missing(request), index)
        for request, index in plan.reclaimed[reclaimed:]:
            builder.missing(request).remove(index)
        del plan.attached[attached:], plan.encode[encode:], plan.prefill[prefill:]
        if plan.setbacks:
            plan.setbacks.reclaimed = plan.setbacks.reclaimed[:reclaimed]
        vars(builder).update(self._numbers, **self._keys)
        plan.encoder_tokens, plan.num_prefill_tokens = self._totals
