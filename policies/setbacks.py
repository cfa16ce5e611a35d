"""What a plan takes away where there is not enough for all: apart from what it gives, as most plans take nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from policies.encoder_cache import Key
from policies.request_state import RequestState

NOBODY: Mapping[RequestState, str] = MappingProxyType({})


class Setbacks:
    """Of one plan; items are named (request, index in its prompt)."""

    __slots__ = ("evicted", "held_back", "preempted", "reclaimed", "refreshed", "refused", "requeued")

    def __init__(self) -> None:
        self.preempted: list[RequestState] = []  # give back everything and start over
        self.requeued: Collection[RequestState] = ()  # of these: go to the queue's head, the last one first
        self.held_back: Collection[RequestState] = ()  # get no token now: they leave the cohort and keep their blocks
        self.refused: Mapping[RequestState, str] = NOBODY  # fail with this iteration, each with the reason
        self.reclaimed: Sequence[tuple[RequestState, int]] = ()  # outputs taken back before their owners read them
        self.evicted: Collection[Key] = ()  # outputs dropped from the encoder cache whatever becomes of the draft
        self.refreshed: Collection[Key] = ()  # outputs that count as released just now, in this order


class MaySetBack:
    """The setbacks of a plan, as if it always had some."""

    __slots__ = ("setbacks",)
    setbacks: Setbacks | None

    def set_back(self) -> Setbacks:
        """For whoever adds one."""
        if self.setbacks is None:
            self.setbacks = Setbacks()
        return self.setbacks

    @property
    def preempted(self) -> Sequence[RequestState]:
        return self.setbacks.preempted if self.setbacks else ()

    @property
    def requeued(self) -> Collection[RequestState]:
        return self.setbacks.requeued if self.setbacks else ()

    @property
    def held_back(self) -> Collection[RequestState]:
        return self.setbacks.held_back if self.setbacks else ()

    @property
    def refused(self) -> Mapping[RequestState, str]:
        return self.setbacks.refused if self.setbacks else NOBODY

    @property
    def reclaimed(self) -> Sequence[tuple[RequestState, int]]:
        return self.setbacks.reclaimed if self.setbacks else ()

    @property
    def evicted(self) -> Collection[Key]:
        return self.setbacks.evicted if self.setbacks else ()

    @property
    def refreshed(self) -> Collection[Key]:
        return self.setbacks.refreshed if self.setbacks else ()
