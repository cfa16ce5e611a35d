"""Encodes an iteration's items in as few calls as the plan says; what is wrong with one concerns its owners alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from executor.clocks import Timer
from executor.messages import first_line
from executor.out_of_memory import is_out_of_memory
from executor.pictures import Pictures
from executor.runner import Runner
from policies.encoder_cache import Key
from policies.plan import IterationPlan
from policies.request_state import RequestState

Owner = tuple[RequestState, int]  # of an item: the request, and where in its prompt
Patches = dict[Owner, Tensor]


class Encoded(NamedTuple):
    """What came of an iteration's items."""

    failed: Sequence[RequestState]
    reason: str
    marks: tuple[Any, Any]  # of the timer, before and after


class ItemEncoder:
    """Pixels in, rows in their places."""

    def __init__(self, runner: Runner, pictures: Pictures) -> None:
        self._runner = runner
        self._pictures = pictures

    def encode(self, plan: IterationPlan, timer: Timer) -> Encoded:
        """Lets out of memory pass, which concerns everybody. Pixels are made before the first mark."""
        if not plan.encode:
            mark = timer.mark()
            return Encoded((), "", (mark, mark))
        patches, errors = self._patches(plan)
        start = timer.mark()
        try:
            for call in plan.encoder_calls():
                self._together([owner for owner in call if owner in patches], patches)
        except Exception as error:  # whichever item it was, it must not cost the others their request
            if is_out_of_memory(error):
                raise
            errors |= self._one_by_one(patches)
        return Encoded(*_blame(plan, errors), (start, timer.mark()))

    def _patches(self, plan: IterationPlan) -> tuple[Patches, dict[Key, str]]:
        """Pixels as the front end hands them over, and what is wrong with those that are missing."""
        patches: Patches = {}
        errors: dict[Key, str] = {}
        for request, index in plan.encode:
            try:
                patches[request, index] = self._pictures.patches(request.items[index], request.content_key(index))
            except Exception as error:  # a broken picture file can make its reader raise anything
                if is_out_of_memory(error):
                    raise
                errors[request.keys[index]] = f"item {index} cannot be read: {first_line(error)}"
        return patches, errors

    def _together(self, owners: list[Owner], patches: Patches) -> None:
        if owners:
            self._runner.encode(
                [patches[owner] for owner in owners],
                [request.items[index] for request, index in owners],
                [request.holds[index] for request, index in owners],
            )

    def _one_by_one(self, patches: Patches) -> dict[Key, str]:
        errors = {}
        for request, index in patches:
            try:
                self._together([(request, index)], patches)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                errors[request.keys[index]] = f"item {index} cannot be encoded: {first_line(error)}"
        return errors


def _blame(plan: IterationPlan, errors: dict[Key, str]) -> tuple[list[RequestState], str]:
    """Everybody who waits for an output that there will not be, and the first reason."""
    owners = [request for request, index in (*plan.encode, *plan.attached) if request.keys[index] in errors]
    return list(dict.fromkeys(owners)), next(iter(errors.values()), "")
