"""A digest of all that a policy decided, to tell variants apart that never decided differently."""

from policies.plan import IterationPlan


class Decisions:
    """Equal digests mean equal plans, iteration by iteration; while only decodes run there is nothing to decide."""

    __slots__ = ("digest",)

    def __init__(self) -> None:
        self.digest = 0

    def add(self, plan: IterationPlan, iteration: int) -> None:
        """Integers only, so that the digest is the same in every process."""
        numbers = [self.digest, iteration, len(plan.encode), len(plan.preempted), plan.decode is not None]
        for request, tokens in plan.prefill:
            numbers += (request.id, tokens)
        for request, index in plan.encode:
            numbers += (request.id, index)
        for request in plan.preempted:
            numbers.append(request.id)
        self.digest = hash(tuple(numbers))
