"""The lines below the tables: whom the server turned away, and who waits for what in a run that stalled."""

from __future__ import annotations

import re

from sim.result import Run

MAX_REASONS = 5
MAX_BLOCKERS = 8


def turned_away(run: Run) -> list[str]:
    """Why requests were rejected or failed: alike reasons counted together, with one of them as an example."""
    lost = run.requests[run.requests["status"].isin(["rejected", "failed"])]
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for request, status, reason in zip(lost["request_id"], lost["status"], lost["reason"], strict=True):
        kind = re.sub(r"\d[\d,.]*", "#", reason.partition(":")[0])  # what follows the colon is advice
        groups.setdefault((status, kind), []).append((request, reason))
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [f"{len(those)} {status}: request {those[0][0]} {those[0][1]}" for (status, _), those in largest]
    return _at_most(lines, MAX_REASONS, "other reasons")


def waiting(run: Run) -> list[str]:
    """Who waits for what in a run that stalled; of several, whose folders have that of the others."""
    lines = [f"stalled: request {request} {reason}" for request, reason in run.blockers.items()]
    return [*_at_most(lines, MAX_BLOCKERS, "more that wait"), *_of_several(run)]


def _of_several(run: Run) -> list[str]:
    """Which of several did not finish."""
    members = [] if run.ensemble is None else run.ensemble.members
    ended = {
        verdict: [str(m.seed) for m in members if m.verdict == verdict] for verdict in ("stalled", "out of memory")
    }
    return [f"{verdict} with seed {', '.join(seeds)}" for verdict, seeds in ended.items() if seeds]


def _at_most(lines: list[str], limit: int, rest: str) -> list[str]:
    return lines if len(lines) <= limit else [*lines[:limit], f"and {len(lines) - limit} {rest}, see requests.parquet"]
