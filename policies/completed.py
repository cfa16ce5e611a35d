"""What became of requests when an iteration was over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from policies.request_state import RequestState


class Completed(NamedTuple):
    """What an iteration, or a run of decode iterations, brought about."""

    emitted: list[RequestState]  # prefill complete: their next token came out of it
    finished: list[RequestState]
    failed: Sequence[RequestState]


completed_of = partial(tuple.__new__, Completed)  # what a NamedTuple does for itself takes twice as long
NOTHING = Completed([], [], ())  # one more token for every decode, and no more
