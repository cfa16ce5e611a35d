"""What a scheduling policy is: one method that drafts the next iteration through the plan builder."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from policies.builder import PlanBuilder
from policies.feasible import why_never
from policies.limits import Limits
from policies.request_state import RequestState
from policies.serving import QueueKey
from workloads.request import MultimodalItem

FOREVER = 2**62  # nanoseconds


class Policy(BaseModel, ABC):
    """A policy is its options and nothing else: whatever it decides, it decides from the builder alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    source: ClassVar[str]  # where the rule comes from, for `tandem policies`
    budgeted: ClassVar[bool] = True  # false for engines from before there were encoder budgets
    fixed: ClassVar[Mapping[str, Any]] = {}  # limits in which the engine leaves no choice, by name
    whole: ClassVar[bool] = True  # whether it wants the outputs of all of a request's items at once
    apart: ClassVar[bool] = True  # whether items may be encoded beside the language model, or on another engine

    def resolve(
        self, limits: Limits, *, largest_item: MultimodalItem | None, row_bytes: int
    ) -> tuple[Limits, list[str]]:
        """The limits as this policy's engine fills them in, and what had to be changed, one line each."""
        engine, notes = limits.fixed(self.fixed)
        own_rows = self.own_cache_rows(engine, row_bytes)
        resolved, more = engine.resolve(
            largest_item=largest_item, row_bytes=row_bytes, budgeted=self.budgeted, own_rows=own_rows
        )
        return resolved, notes + more

    def own_cache_rows(self, limits: Limits, row_bytes: int) -> int | None:
        """Rows of the engine's own encoder cache where a scenario does not say; None: as `Limits` has it."""
        return None

    def why_never(self, limits: Limits, request: RequestState) -> str:
        """Why this engine can never serve the request, in one line with advice; empty if it can."""
        return why_never(limits, request, whole=self.whole)

    @property
    def queue_key(self) -> QueueKey | None:
        """What the waiting queue is sorted by; None: requests wait in the order in which they leave the front end."""
        return None

    @abstractmethod
    def schedule(self, builder: PlanBuilder) -> None:
        """Draft the next iteration. Must depend on nothing but the builder, and change nothing but its plan."""

    def stable_until(self, builder: PlanBuilder) -> int:
        """Until when (ns) the same plan of decodes would be drafted again if nothing arrived, finished or ran out.

        A policy with ageing or deadlines says sooner than forever.
        """
        return FOREVER
