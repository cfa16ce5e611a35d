"""Which of two variants is better, and how sure that is: they had the same seeds and draws, so it can be counted."""

from __future__ import annotations

from collections.abc import Sequence

from sim.ensemble import Draws, Ensemble
from sim.result import Run

FIGURES = {  # by the names that a verdict calls them, and whether less is better
    "TTFT p99": ("p99_ttft_ms", True),
    "ITL p99": ("p99_itl_ms", True),
    "E2E p99": ("p99_e2el_ms", True),
    "requests/s": ("request_throughput", False),
    "requests within SLOs": ("slo_attainment", False),
}
FEWEST = 5  # runs; of fewer a share says little


def share_better(ours: Ensemble, theirs: Ensemble, name: str, *, less: bool) -> float | None:
    """In what share of the runs our figure is better than theirs of the same seed; None where one is undefined.

    What is equal to the last digit is no better.
    """
    pairs = list(zip(ours.figures[name], theirs.figures[name], strict=False))
    if not pairs:
        return None
    return sum(one < other if less else one > other for one, other in pairs) / len(pairs)


def verdicts(runs: Sequence[tuple[str, Run]]) -> list[str]:
    """`head_of_line beats fcfs on TTFT p99 in 96 % of 50 draws`: every later variant against the first one.

    Nothing where variants were not run with the same seeds, or too few of them.
    """
    several = [(label, run.ensemble) for label, run in runs if run.ensemble is not None]
    seeds = {tuple(member.seed for member in ensemble.members) for _, ensemble in several}
    if len(several) < len(runs) or len(seeds) != 1 or len(next(iter(seeds))) < FEWEST:
        return []
    (label, first), *others = several
    what = f"{len(first.members)} {'draws' if isinstance(first, Draws) else 'seeds'}"
    return [f"{name} beats {label} on {_shares(ensemble, first)} of {what}" for name, ensemble in others]


def _shares(ours: Ensemble, theirs: Ensemble) -> str:
    shares = {title: share_better(ours, theirs, name, less=less) for title, (name, less) in FIGURES.items()}
    return ", ".join(f"{title} in {100 * share:.0f} %" for title, share in shares.items() if share is not None)
