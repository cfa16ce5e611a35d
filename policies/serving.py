"""The state of one engine: who waits, who is active, who decodes, and what memory they hold."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence

from policies.blocks import BlockPool, KVBlockPool
from policies.budgets import UNBOUNDED, Budgets
from policies.completed import NOTHING, Completed, completed_of
from policies.decodes import DecodeCohort
from policies.encoder_cache import EncoderCache
from policies.items import (
    count_passed,
    encoded,
    evict,
    hold_early,
    hold_items,
    reclaim,
    release_passed,
    release_used,
)
from policies.limits import Limits
from policies.moves import admit, give_back, hold_back, preempt, requeue
from policies.plan import IterationPlan
from policies.request_state import RequestState

QueueKey = Callable[[RequestState], tuple[int, ...]]  # what the waiting queue is sorted by


class ServingState(Budgets):
    """The one thing that changes. `begin` and `complete` bracket a launch; arrivals and aborts come between drafts."""

    overlaps = False  # whether outputs may be in flight when an iteration is drafted
    lands_later = False  # whether those that an iteration encodes are then still in flight, too late for its prefill

    def __init__(self, limits: Limits, queue_key: QueueKey | None = None) -> None:
        """`limits` as resolved, with a number of KV blocks. Without a key, requests wait in the order of `submit`."""
        assert limits.num_kv_blocks is not None, "resolve the number of KV blocks first"
        super().__init__(limits)
        self.queue_key = queue_key
        capacity = self.encoder_cache_rows if self.encoder_cache_rows < UNBOUNDED else None
        self.cache = EncoderCache(capacity, reuse=limits.encoder_cache_reuse, references=limits.references)
        self.waiting: deque[RequestState] = deque()
        self.contexts: dict[RequestState, None] = {}  # active and not decoding, in order of admission
        self.pool = self._new_pool(limits.num_kv_blocks, limits.block_size)
        self.decodes = self._new_decodes()
        self.num_admitted = 0
        self.num_queued = 0
        self.num_finished = 0

    def _new_pool(self, num_blocks: int, block_size: int) -> BlockPool:
        return KVBlockPool(num_blocks, block_size)

    def _new_decodes(self) -> DecodeCohort:
        return DecodeCohort(self.pool)

    @property
    def num_active(self) -> int:
        return len(self.contexts) + len(self.decodes.members)

    def submit(self, request: RequestState) -> None:
        request.max_blocks = self.pool.blocks_for(request.max_tokens)
        if not self.limits.encoder_cache_reuse:
            request.use_own_keys()
        self.number(request)
        if self.queue_key is None:
            self.waiting.append(request)
        else:
            insort(self.waiting, request, key=self.queue_key)

    def number(self, request: RequestState) -> None:
        """It queues now."""
        request.queued = self.num_queued
        self.num_queued += 1

    # Before the launch

    def only_decodes(self) -> bool:
        """Nobody waits, everybody active decodes, and the blocks suffice: nothing is left to decide."""
        if self.contexts or self.waiting:
            return False
        decodes, free = self.decodes, self.pool.num_free
        number = len(decodes.members)
        return 0 < number <= self.max_num_batched_tokens and (number <= free or decodes.num_crossing() <= free)

    def steps_alike(self) -> int:
        """How many times a plan of nothing but decodes would be drafted again if nothing arrived or was cancelled.

        Until a member finishes or the KV blocks run out. Where an active request may take blocks back from younger
        ones, it can do so as soon as the decodes have grown, so only once.
        """
        if self.contexts and not self.no_evict:
            return 1
        return self.decodes.steps_alike()

    def begin(self, plan: IterationPlan) -> None:
        """Carry out a plan's decisions and complete it with addresses: evict, hand out blocks and rows, hold."""
        late = hold_early(self.cache, plan) if plan.attached else ()
        if plan.setbacks:
            self._set_back(plan)
        if plan.admitted:
            admit(self, plan)
        if plan.setbacks:
            requeue(self, plan)
        if plan.encode or plan.attached or plan.charged:
            hold_items(self.cache, plan, late)
        if plan.decode is not None:
            self.begin_decodes(plan)
        pool = self.pool
        for request, num_tokens in [*plan.prefill, *plan.kept_blocks] if plan.kept_blocks else plan.prefill:
            blocks = -(-(request.num_computed_tokens + num_tokens) // pool.block_size) - len(request.blocks)
            if blocks > 0:
                request.blocks += pool.take(blocks)

    def _set_back(self, plan: IterationPlan) -> None:
        """What the plan takes away, but for a seat: who loses it goes behind those who are admitted."""
        if plan.preempted:
            preempt(self, plan)
        reclaim(self.cache, plan)
        evict(self.cache, plan)
        if plan.held_back:
            hold_back(self, plan)

    def begin_decodes(self, plan: IterationPlan) -> None:
        """As much of `begin` as a plan of nothing but decodes needs."""
        decodes = self.decodes
        decodes.grow()
        plan.num_decodes = len(decodes.members)
        plan.context_tokens = decodes.context_tokens

    # After it

    def complete(self, plan: IterationPlan, num_iterations: int = 1, failed: Sequence[RequestState] = ()) -> Completed:
        """Account for what ran: tokens, releases, finishes. More than one iteration only where only decodes ran."""
        finished: list[RequestState] = []
        if plan.decode is not None:
            finished = plan.decode.advance(num_iterations)
        if not (finished or plan.prefill or plan.encode or (plan.setbacks and plan.refused)):
            return NOTHING
        emitted: list[RequestState] = []
        if plan.encode:
            self._encoded(plan, failed)
        if plan.setbacks:
            failed = [*failed, *plan.refused]
        for request in failed:
            self.abort(request)
        for request, num_tokens in plan.prefill:
            if request in self.contexts:
                self._computed(request, num_tokens, plan.lookahead, emitted, finished)
        if not self.cache.references:
            release_used(self.cache, plan)
        for request in finished:
            give_back(self, request)
        self.num_finished += len(finished)
        return completed_of((emitted, finished, failed))

    def _encoded(self, plan: IterationPlan, failed: Sequence[RequestState]) -> None:
        encoded(self.cache, plan, failed)

    def _computed(
        self,
        request: RequestState,
        num_tokens: int,
        lookahead: int,
        emitted: list[RequestState],
        finished: list[RequestState],
    ) -> None:
        request.num_computed_tokens = computed = request.num_computed_tokens + num_tokens
        done = computed == request.target
        if request.holds:
            if not self.cache.references:
                count_passed(request)
            elif done or self.limits.release == "progressive":
                release_passed(self.cache, request, 0 if done else lookahead)
        if done:
            request.num_generated += 1
            del self.contexts[request]
            emitted.append(request)
            if request.num_generated == request.request.output_tokens:
                finished.append(request)
            else:
                self.decodes.join(request)

    # Leaving

    def take_back(self, request: RequestState) -> None:
        """Everything that it has, as it starts over."""
        give_back(self, request)

    def abort(self, request: RequestState) -> None:
        """Take a request out wherever it is; nothing of it stays behind, and a second abort finds nothing to do."""
        if request in self.decodes.members:
            self.decodes.leave(request)
        elif request in self.contexts:
            del self.contexts[request]
        elif request in self.waiting:
            self.waiting.remove(request)
        give_back(self, request)
