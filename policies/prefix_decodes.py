"""The cohort of decodes on shared blocks: its growth may cost somebody the prefix that it would have found."""

from __future__ import annotations

from policies.decodes import DecodeCohort
from policies.prefixes import Prefixes


class PrefixDecodes(DecodeCohort):
    """Decodes that grow may evict what somebody who has not started would have found, and then a policy is asked."""

    __slots__ = ("_prefixes",)

    def __init__(self, prefixes: Prefixes) -> None:
        super().__init__(prefixes.pool)
        self._prefixes = prefixes

    def steps_alike(self) -> int:
        """As ever, and no further than the first step that takes a block which somebody depends on."""
        steps, watched = super().steps_alike(), self._prefixes.watched
        if not watched:
            return steps
        most = len(self.members) * (steps // self._block_size + 1)
        free = self._prefixes.pool.num_unwatched(watched, most)
        return steps if most <= free else max(min(1, steps), self._with_blocks(steps, free))
