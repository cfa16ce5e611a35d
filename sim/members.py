"""Who shared an iteration: whose items it encoded and whose prompts it prefilled."""

from collections.abc import Iterable

from policies.plan import IterationPlan

Sharing = tuple[dict[int, int], dict[int, int]]  # encoder tokens and prefill tokens, by request
Members = dict[int, Sharing]  # by iteration


def sharing(plan: IterationPlan) -> Sharing:
    """Requests by their ids, each with its tokens."""
    encoded = ((request.id, request.items[index].encoder_tokens) for request, index in plan.encode)
    return _summed(encoded), _summed((request.id, tokens) for request, tokens in plan.prefill)


def _summed(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for request, tokens in pairs:
        sums[request] = sums.get(request, 0) + tokens
    return sums
