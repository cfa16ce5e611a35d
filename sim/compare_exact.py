"""The exact checks: is a run that was done again, from records or by simulation, the live run to the last bit?"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from sim.differences import (
    Difference,
    iterations_that_differ,
    requests_that_differ,
    texts_that_differ,
)
from sim.recorded import RecordedLive
from sim.twin import Rerun


class Exact(NamedTuple):
    """What was compared, and where it first differs, if it does."""

    num_iterations: int
    num_requests: int
    partial: bool  # the live run ended early: what it had recorded was compared
    difference: Difference | None

    @property
    def identical(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        if self.difference is not None:
            return f"differs at {self.difference}"
        asides = "; the live run ended early, and what it had recorded was compared" if self.partial else ""
        return f"identical ({self.num_iterations:,} iterations, {self.num_requests:,} requests{asides})"


def same_run(again: Rerun, live: RecordedLive, us: str) -> Exact:
    """Plans, iterations and requests; `us` is what to call the run that was done again.

    A live run that was interrupted in the middle, or that ended out of memory in a place that left no record, is
    compared as far as it went: its plans, its iterations, and the requests that had left by then.
    """
    partial = live.verdict == "interrupted" or (live.ended_early and again.run.verdict != live.verdict)
    theirs = _left(live.requests) if partial else live.requests
    differences = [*_of_plans(again, live, us, partial), *_of_tables(again, live, theirs, us, partial)]
    first = min(differences, key=lambda difference: difference.iteration, default=None)
    return Exact(len(live.plans), len(theirs), partial, first)


def _of_plans(again: Rerun, live: RecordedLive, us: str, partial: bool) -> list[Difference]:
    texts = again.texts
    if again.difference is not None or again.ran_out:
        stopped = len(texts)  # up to there every line is the twin's own
        found = [texts_that_differ(texts, live.texts[:stopped], us, "live"), again.difference]
        if again.ran_out and not partial:
            found.append(Difference(f"iteration {stopped}", f"live has no more plans, the {us} goes on", stopped))
    else:
        found = [texts_that_differ(texts[: len(live.texts)] if partial else texts, live.texts, us, "live")]
    return [difference for difference in found if difference is not None]


def _of_tables(again: Rerun, live: RecordedLive, theirs: pd.DataFrame, us: str, partial: bool) -> list[Difference]:
    found = []
    whole = not (partial or again.difference or again.ran_out)
    if live.iterations is not None:
        ours, other = again.run.iterations, live.iterations
        size = max(len(ours), len(other)) if whole else min(len(ours), len(other))
        found.append(iterations_that_differ(ours[:size], other[:size], us, "live"))
    if again.difference is None:
        ours = again.run.requests
        ours = ours[ours["request_id"].isin(theirs["request_id"])] if partial else ours
        found.append(requests_that_differ(ours, theirs, us, "live"))
    if whole and again.run.verdict != live.verdict:
        found.append(Difference("the run", f"verdict: {us} {again.run.verdict}, live {live.verdict}"))
    return [difference for difference in found if difference is not None]


def _left(requests: pd.DataFrame) -> pd.DataFrame:
    return requests[requests["status"] != "unfinished"].reset_index(drop=True)
