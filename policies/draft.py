"""What a plan in the making may still spend, of everything that an iteration spends."""

from __future__ import annotations

from policies.encoder_cache import Key
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import ServingState


class Draft:
    """Taken from the state as it stands, all in one place since drafts are many; the state itself stays as it is."""

    def __init__(self, state: ServingState, now: int) -> None:
        contexts, cache = state.contexts, state.cache
        self.state = state
        self.now = now  # nanoseconds: all that a policy knows of time
        self.plan = IterationPlan()
        self.waiting = state.waiting  # not admitted yet, in the order in which they left the front end, or the policy's
        self.contexts = [*contexts]  # active, not decoding yet, newly admitted ones included; first come first
        self.tokens_left = state.max_num_batched_tokens
        self.free_blocks = state.pool.num_free
        self.encoder_items_left = state.encoder_max_num_items
        self.encoder_tokens_left = state.encoder_max_num_tokens
        self.rows_left = state.rows_in_all - cache.held_rows  # that are free, or can be had by evicting
        self._seats = state.max_num_seqs - len(contexts) - len(state.decodes.members)
        self._claims: dict[Key, int] = {}  # holds on outputs that this draft adds
        self._encoding: set[Key] = set()  # keys that this draft encodes
        self._missing: dict[RequestState, list[int]] = {}  # of whom it was asked, less what this draft obtains
