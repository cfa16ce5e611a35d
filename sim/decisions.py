"""A digest of all that a policy decided, to tell variants apart that never decided differently."""

from policies.plan import IterationPlan
from policies.setbacks import Setbacks

# what comes next; none of the numbers themselves is negative, and -1 hashes as -2 does
PLAN, ENCODE, PREEMPT, HOLD_BACK, REQUEUE, EVICT = range(-8, -2)
MANY = 4096  # numbers hashed at a time


class Decisions:
    """Equal digests mean equal plans, iteration by iteration; while only decodes run there is nothing to decide."""

    __slots__ = ("_hashed", "_numbers")

    def __init__(self) -> None:
        self._hashed = 0
        self._numbers: list[int] = []  # not hashed yet

    def add(self, plan: IterationPlan, iteration: int) -> None:
        """Integers only, so that the digest is the same in every process."""
        numbers = self._numbers
        if len(numbers) > MANY:
            self._hashed = self.digest
            numbers.clear()
        numbers += (PLAN, iteration, plan.decode is not None)
        for request, tokens in plan.prefill:
            numbers += (request.id, tokens)
        if plan.encode:
            numbers += (ENCODE, *(number for request, index in plan.encode for number in (request.id, index)))
        if plan.setbacks:
            self._add_setbacks(plan.setbacks)

    def _add_setbacks(self, setbacks: Setbacks) -> None:
        lists = (PREEMPT, setbacks.preempted), (HOLD_BACK, setbacks.held_back), (REQUEUE, setbacks.requeued)
        for what, requests in lists:
            if requests:
                self._numbers += (what, *(request.id for request in requests))
        if setbacks.evicted:
            self._numbers += (EVICT, len(setbacks.evicted))

    @property
    def digest(self) -> int:
        return hash((self._hashed, *self._numbers))
