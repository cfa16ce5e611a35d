"""Published figures that a scenario is shown beside: cited, labelled, and never tuned to."""

from typing import Literal

from pydantic import model_validator

from policies import POLICIES
from workloads.errors import InputError
from workloads.frozen import Frozen


class PublishedFigure(Frozen):
    """One figure, or one change in percent, of a metric of `summary.json` under a policy."""

    metric: str
    policy: str = "head_of_line"
    value: float | None = None  # as published, in the metric's unit
    change_percent: float | None = None  # as published, from `against` to `policy`
    against: str | None = None
    note: str = ""  # what the publication calls it, and its spread

    @model_validator(mode="after")
    def _one_of_both(self) -> "PublishedFigure":
        if (self.value is None) == (self.change_percent is None):
            raise InputError("needs either value or change_percent")
        if (self.change_percent is None) != (self.against is None):
            raise InputError("a change_percent needs the policy it is a change against, and nothing else does")
        kinds = [policy.model_fields["kind"].default for policy in POLICIES]
        for name in (self.policy, self.against):
            if name is not None and name not in kinds:
                raise InputError(f"unknown policy {name!r}; one of: {', '.join(kinds)}")
        return self


class Published(Frozen):
    """What somebody measured on a real server in about this situation."""

    source: str
    label: Literal["published"] = "published"
    figures: list[PublishedFigure]
