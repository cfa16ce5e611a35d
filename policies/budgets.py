"""An engine's limits as numbers, which every draft begins with."""

from policies.limits import Limits

UNBOUNDED = 2**62  # a budget that nothing exhausts


class Budgets:
    """Of one iteration, but for the cache's rows: those are of all requests together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.no_evict = limits.capacity == "no_evict"
        self.max_num_seqs = limits.max_num_seqs
        self.max_num_batched_tokens = limits.max_num_batched_tokens
        self.encoder_max_num_items = _number(limits.encoder_max_num_items)
        self.encoder_max_num_tokens = _number(limits.encoder_max_num_tokens)
        self.encoder_cache_rows = _number(limits.encoder_cache_rows)
        self.rows_in_all = self.encoder_cache_rows if limits.references else UNBOUNDED  # less what is held: a draft's


def _number(limit: int | str | None) -> int:
    return limit if isinstance(limit, int) else UNBOUNDED
