"""A digest of all that a policy decided, to tell variants apart that never decided differently."""

from policies.plan import IterationPlan


class Decisions:
    """Equal digests mean equal plans, iteration by iteration; while only decodes run there is nothing to decide."""

    __slots__ = ("digest",)

    def __init__(self) -> None:
        self.digest = 0

    def add(self, plan: IterationPlan, iteration: int) -> None:
        """Integers only, so that the digest is the same in every process."""
        numbers = [self.digest, iteration, plan.decode is not None]
        for request, tokens in plan.prefill:
            numbers += (request.id, tokens)
        setbacks = plan.setbacks
        if plan.encode or (setbacks and setbacks.preempted):
            numbers += (-1, *(number for request, index in plan.encode for number in (request.id, index)))
            numbers += (-2, *(request.id for request in plan.preempted))
        if setbacks and (setbacks.held_back or setbacks.requeued or setbacks.evicted):
            numbers += (-3, *(request.id for request in setbacks.held_back))
            numbers += (-4, *(request.id for request in setbacks.requeued), len(setbacks.evicted))
        self.digest = hash(tuple(numbers))
