"""The running decodes as one cohort: a count and a context sum instead of work for each request in each iteration."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from policies.blocks import BlockPool, no_blocks
from policies.request_state import RequestState


class DecodeCohort:
    """Every member gets one token in every step of the cohort.

    So a member's last step is known when it joins, and it crosses into a new KV block once in `block_size` steps:
    at step s, `_crossing[s % block_size]` members need one. Who got which is settled when somebody asks.
    """

    __slots__ = (
        "_block_size",
        "_crossing",
        "_finishing",
        "_pool",
        "_unsettled",
        "context_tokens",
        "members",
        "num_blocks",
        "steps",
    )

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._block_size = pool.block_size
        self._crossing = [0] * pool.block_size
        self._finishing: list[tuple[int, int, RequestState]] = []  # heap of (last step, order of admission, request)
        self._unsettled = no_blocks()  # blocks that members took and that are not in their block tables yet
        self.members: dict[RequestState, None] = {}
        self.steps = 0
        self.context_tokens = 0  # tokens that the next step attends to, summed over members
        self.num_blocks = 0  # KV blocks that the members need until their answers are complete

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self.members)

    def join(self, request: RequestState) -> None:
        steps = request.joined = self.steps
        request.last_step = last = steps + request.request.output_tokens - request.num_generated
        computed = request.num_computed_tokens
        self.members[request] = None
        self.context_tokens += computed + 1
        self.num_blocks += request.max_blocks
        self._crossing[(steps - computed) % self._block_size] += 1
        heappush(self._finishing, (last, request.order, request))

    def leave(self, request: RequestState) -> None:
        """Stop decoding: write back into the request what the cohort counted for it."""
        self._settle(request)
        del self.members[request]
        self._crossing[(request.joined - request.num_computed_tokens) % self._block_size] -= 1
        steps = self.steps - request.joined
        request.num_computed_tokens += steps
        request.num_generated += steps
        request.joined = -1
        self.context_tokens -= request.num_computed_tokens + 1
        self.num_blocks -= request.max_blocks

    def steps_alike(self) -> int:
        """Steps until the next member's answer is complete or the KV blocks run out; there must be a member."""
        finishing = self._finishing
        last, _, request = finishing[0]
        while last != request.last_step or request.joined < 0:
            heappop(finishing)  # left before its time
            last, _, request = finishing[0]
        limit = last - self.steps
        most = len(self.members) * (limit // self._block_size + 1)  # blocks
        free = self._pool.num_free
        return limit if most <= free else self._with_blocks(limit, free)

    def num_crossing(self) -> int:
        """KV blocks that the next step needs."""
        return self._crossing[self.steps % self._block_size]

    def crosses(self, request: RequestState) -> bool:
        """Whether the request is a member that needs a KV block in the next step."""
        behind = self.steps - request.joined + request.num_computed_tokens
        return request in self.members and behind % self._block_size == 0

    def _with_blocks(self, limit: int, free: int) -> int:
        """How many steps, at most `limit`, that many free KV blocks last for."""
        size = self._block_size
        for step in range(limit):
            free -= self._crossing[(self.steps + step) % size]
            if free < 0:
                return step
        return limit

    def grow(self) -> None:
        """Take a block for every member that crosses at the next step."""
        if blocks := self._crossing[self.steps % self._block_size]:
            self._unsettled += self._pool.take(blocks)

    def advance(self, steps: int) -> list[RequestState]:
        """That many steps were taken; the first one's blocks were taken by `grow`, those of the others are now.

        Returns the members whose answers are complete now, in order of admission; they leave the cohort.
        """
        if steps > 1:
            self._grow_more(steps)
        self.steps += steps
        self.context_tokens += steps * len(self.members)
        finishing = self._finishing
        return self._pop_finished() if finishing and finishing[0][0] <= self.steps else []

    def _grow_more(self, steps: int) -> None:
        """What `grow` would have taken at the steps after the first."""
        size, crossing = self._block_size, self._crossing
        cycles, rest = divmod(steps - 1, size)  # in a whole cycle every member crosses once
        second = (self.steps + 1) % size
        blocks = cycles * len(self.members) + sum(crossing[second : second + rest])
        if second + rest > size:
            blocks += sum(crossing[: second + rest - size])
        if blocks:
            self._unsettled += self._pool.take(blocks)

    def settle(self, ahead: int = 0) -> None:
        """Complete the members' block tables, for the next `ahead` tokens too (1 between `begin` and `complete`)."""
        for request in self.members:
            self._settle(request, ahead)

    def _settle(self, request: RequestState, ahead: int = 0) -> None:
        missing = self.num_blocks_of(request, ahead) - len(request.blocks)
        if missing > 0:
            request.blocks += self._unsettled[-missing:]
            del self._unsettled[-missing:]

    def num_blocks_of(self, request: RequestState, ahead: int = 0) -> int:
        """KV blocks that hold the member's tokens, and the next `ahead`."""
        return -(-(request.num_computed_tokens + self.steps - request.joined + ahead) // self._block_size)

    def _pop_finished(self) -> list[RequestState]:
        finishing, steps, finished = self._finishing, self.steps, []
        while finishing and finishing[0][0] <= steps:
            last, _, request = heappop(finishing)
            if request.last_step == last and request.joined >= 0:
                self.leave(request)
                finished.append(request)
        return finished
