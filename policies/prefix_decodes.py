"""The cohort of decodes on shared blocks: it takes blocks from a queue, and sees whose prefix goes with them."""

from __future__ import annotations

from policies.decodes import DecodeCohort
from policies.prefixes import Prefixes


class PrefixDecodes(DecodeCohort):
    """Decodes that grow may evict what somebody who has not started would have found, and then a policy is asked."""

    __slots__ = ("_prefixes",)

    def __init__(self, prefixes: Prefixes) -> None:
        super().__init__(prefixes.pool)
        self._prefixes = prefixes

    def grow(self) -> None:
        """Take a block for every member that crosses at the next step."""
        if count := self.num_crossing:
            self._unsettled += self._pool.take(count)

    def _with_blocks(self, limit: int, free: int) -> int:
        steps, watched = super()._with_blocks(limit, free), self._prefixes.watched
        if not watched:
            return steps
        most = len(self.members) * (steps // self._block_size + 1)
        return max(min(1, steps), super()._with_blocks(steps, self._prefixes.pool.num_unwatched(watched, most)))
