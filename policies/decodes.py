"""The running decodes as one cohort: a count and a context sum instead of work for each request in each iteration."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from policies.blocks import KVBlockPool
from policies.request_state import RequestState


class DecodeCohort:
    """Every member gets one token in every step of the cohort.

    So a member's last step is known when it joins, and it crosses into a new KV block once in `block_size` steps:
    `_crossing[s % block_size]` are the members that need one at step s.
    """

    __slots__ = ("_block_size", "_crossing", "_finishing", "_pool", "context_tokens", "members", "num_blocks", "steps")

    def __init__(self, pool: KVBlockPool) -> None:
        self._pool = pool
        self._block_size = pool.block_size
        self._crossing: list[dict[RequestState, None]] = [{} for _ in range(pool.block_size)]
        self._finishing: list[tuple[int, int, RequestState]] = []  # heap of (last step, order of admission, request)
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
        self.num_blocks += -(-request.max_tokens // self._block_size)
        self._crossing[(steps - computed) % self._block_size][request] = None
        heappush(self._finishing, (last, request.order, request))

    def leave(self, request: RequestState) -> None:
        """Stop decoding: write back into the request what the cohort counted for it."""
        del self.members[request]
        del self._crossing[(request.joined - request.num_computed_tokens) % self._block_size][request]
        steps = self.steps - request.joined
        request.num_computed_tokens += steps
        request.num_generated += steps
        request.joined = -1
        self.context_tokens -= request.num_computed_tokens + 1
        self.num_blocks -= -(-request.max_tokens // self._block_size)

    @property
    def steps_to_finish(self) -> int:
        """Steps until the next member's answer is complete; there must be a member."""
        finishing = self._finishing
        while finishing[0][0] != finishing[0][2].last_step or finishing[0][2].joined < 0:
            heappop(finishing)  # left before its time
        return finishing[0][0] - self.steps

    @property
    def num_crossing(self) -> int:
        """KV blocks that the next step needs."""
        return len(self._crossing[self.steps % self._block_size])

    def crosses(self, request: RequestState) -> bool:
        """Whether the request is a member that needs a KV block in the next step."""
        return request in self._crossing[self.steps % self._block_size]

    def steps_with_blocks(self, limit: int) -> int:
        """How many steps, at most `limit`, the free KV blocks last for."""
        free, size = len(self._pool.free), self._block_size
        if len(self.members) * (limit // size + 1) <= free:
            return limit
        for step in range(limit):
            free -= len(self._crossing[(self.steps + step) % size])
            if free < 0:
                return step
        return limit

    def grow(self, offset: int = 0) -> int:
        """Give a block to every member that crosses at the step `offset` from now; how many blocks that were."""
        crossing = self._crossing[(self.steps + offset) % self._block_size]
        if not crossing:
            return 0
        free = self._pool.free
        for request in crossing:
            request.blocks.append(free.pop())
        return len(crossing)

    def advance(self, steps: int) -> None:
        self.steps += steps
        self.context_tokens += steps * len(self.members)

    def pop_finished(self) -> list[RequestState]:
        """The members whose answers are complete now, in order of admission; they leave the cohort."""
        finishing, finished, steps = self._finishing, [], self.steps
        while finishing and finishing[0][0] <= steps:
            last, _, request = heappop(finishing)
            if request.last_step == last and request.joined >= 0:
                self.leave(request)
                finished.append(request)
        return finished
