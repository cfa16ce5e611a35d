"""A plan in the making: the only hands on the budgets, through which a policy drafts the next iteration."""

from __future__ import annotations

from policies.request_state import RequestState
from policies.reservations import Reservations


class PlanBuilder(Reservations):
    """Each verb takes all that it names, or changes nothing and says False; a question never changes the answer.

    Nothing outside the draft changes before `ServingState.begin` gets the plan.
    """

    # Questions

    def completes(self, request: RequestState) -> bool:
        """Whether this iteration computes the last of what the request has to prefill."""
        return any(r is request and tokens == r.remaining for r, tokens in self.plan.prefill)

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
        count = len(decodes.members)
        if plan.setbacks:
            count -= sum(request in decodes.members for request in plan.preempted) + len(plan.held_back)
        if not 0 < count <= self.tokens_left:
            return False
        blocks = self.blocks_to_decode if plan.setbacks else decodes.num_crossing()
        if blocks > self.free_blocks:
            return False
        plan.decode = decodes
        self.tokens_left -= count
        self.free_blocks -= blocks
        return True

    def prefill(self, request: RequestState, num_tokens: int) -> bool:
        """Compute the request's next `num_tokens`, as far as budget, KV blocks and its items allow all of them."""
        state = self.state
        end = request.num_computed_tokens + num_tokens
        blocks = -(-end // state.pool.block_size) - len(request.blocks)
        if not 0 < num_tokens <= self.tokens_left or blocks > self.free_blocks:
            return False
        if request.num_items_ahead and not self._covers(request, end):
            return False
        plan = self.plan
        self.tokens_left -= num_tokens
        if blocks > 0:
            self.free_blocks -= blocks
        plan.prefill.append((request, num_tokens))
        plan.num_prefill_tokens += num_tokens
        if plan.blocked:
            plan.blocked.pop(request, None)  # it gets on, whatever refused it an item behind this chunk
        return True

    def _covers(self, request: RequestState, end: int) -> bool:
        """Whether all items that begin before `end` are there."""
        unready = self.unready(request)
        return not unready or request.items[unready[0]].offset >= end

    def keep_blocks(self, request: RequestState, num_tokens: int) -> bool:
        """Take the KV blocks of the request's next `num_tokens` before it can compute them."""
        blocks = self.blocks_needed(request, num_tokens)
        if blocks > self.free_blocks:
            return False
        self.free_blocks -= blocks
        if blocks:
            self.plan.kept_blocks = [*self.plan.kept_blocks, (request, num_tokens)]
        return True

    def preempt(self, request: RequestState, *, requeue: bool = False) -> bool:
        """Take everything back from a started request; it computes its tokens again later.

        It keeps its place among the active, or with `requeue` goes to the head of the waiting queue; then also what
        this draft has for it is taken back, and its encoder rows can be had.
        """
        if request in self.plan.preempted:
            return False
        self._stop(request)
        self.plan.set_back().preempted.append(request)
        if request in self.contexts:
            self.contexts.remove(request)
        decodes = self.state.decodes
        self.free_blocks += decodes.num_blocks_of(request) if request in decodes.members else len(request.blocks)
        self._none_runs()
        if requeue:
            self._send_back(request)
        return True
