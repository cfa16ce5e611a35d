"""A plan in the making: the only hands on the budgets, through which a policy drafts the next iteration."""

from __future__ import annotations

from policies.request_state import RequestState
from policies.serving import ServingState
from policies.turns import Turns


class PlanBuilder(Turns):
    """Each verb takes all that it names, or changes nothing and says False; a question never changes the answer.

    Nothing outside the draft changes before `ServingState.begin` gets the plan.
    """

    def __init__(self, state: ServingState, now: int) -> None:
        super().__init__(state)
        self.now = now  # nanoseconds: all that a policy knows of time
        self.tokens_left = state.max_num_batched_tokens
        self.free_blocks = len(state.pool.free)
        self.waiting = state.waiting  # not admitted yet, in the order in which they left the front end, or the policy's
        self.contexts = [*state.contexts]  # active, not decoding yet, newly admitted ones included; first come first
        self._seats = state.max_num_seqs - len(state.contexts) - len(state.decodes.members)

    # Questions

    @property
    def blocks_to_decode(self) -> int:
        """KV blocks that this iteration's decodes cross into."""
        decodes = self.state.decodes
        blocks = decodes.num_crossing
        if self.plan.preempted:
            blocks -= sum(map(decodes.crosses, self.plan.preempted))
        if self._held_back:
            blocks -= sum(map(decodes.crosses, self._held_back))
        return blocks

    # Admission

    @property
    def has_seats(self) -> bool:
        """Whether anybody could be admitted."""
        return self._seats > 0

    def admit(self, request: RequestState) -> bool:
        """Give a request from the waiting queue a seat among `max_num_seqs`."""
        if self._seats <= 0:
            return False
        self._seats -= 1
        self.plan.admitted.append(request)
        self.contexts.append(request)
        return True

    # The language model

    def decode(self) -> bool:
        """Run every decode that is neither preempted nor held back: one token each."""
        plan, decodes = self.plan, self.state.decodes
        count, blocks = len(decodes.members), self.blocks_to_decode
        if plan.preempted:
            count -= sum(request in decodes.members for request in plan.preempted)
        if self._held_back:
            count -= len(self._held_back)
        if not count or count > self.tokens_left or blocks > self.free_blocks:
            return False
        plan.decode = decodes
        self.tokens_left -= count
        self.free_blocks -= blocks
        return True

    def prefill(self, request: RequestState, num_tokens: int) -> bool:
        """Compute the request's next `num_tokens`, as far as budget, KV blocks and its items allow all of them."""
        state = self.state
        end = request.num_computed_tokens + num_tokens
        blocks = max(0, -(-end // state.pool.block_size) - len(request.blocks))
        if request.hit:
            blocks -= self.num_shared(request)
        if not 0 < num_tokens <= self.tokens_left or blocks > self.free_blocks:
            return False
        if request.num_items_ahead and not self._covers(request, end):
            return False
        self.tokens_left -= num_tokens
        self.free_blocks -= blocks
        self.plan.prefill.append((request, num_tokens))
        self.plan.num_prefill_tokens += num_tokens
        if request.hit:
            self._attach_prefix(request)
        if self.plan.blocked:
            self.plan.blocked.pop(request, None)  # it gets on, whatever refused it an item behind this chunk
        return True

    def _covers(self, request: RequestState, end: int) -> bool:
        """Whether all items that begin before `end` are there."""
        missing = self.missing(request)
        return not missing or request.items[missing[0]].offset >= end

    def preempt(self, request: RequestState, *, requeue: bool = False) -> bool:
        """Take everything back from a started request; it computes its tokens again later.

        It keeps its place among the active, or with `requeue` goes to the head of the waiting queue; then also what
        this draft has for it is taken back, and its encoder rows can be had.
        """
        if request in self.plan.preempted:
            return False
        self._stop(request)
        self.plan.preempted.append(request)
        if request in self.contexts:
            self.contexts.remove(request)
        decodes = self.state.decodes
        self.free_blocks += decodes.num_blocks_of(request) if request in decodes.members else len(request.blocks)
        if self.state.prefixes is not None:
            self.free_blocks -= self._drop_blocks(request)
        self._none_runs()
        if requeue:
            self._send_back(request)
        return True
