"""Several runs of one scenario that differ in their random draws: each figure's mean, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sim.latencies import Floats, Quantiles, all_quantiles, mean_ttft_parts
from sim.metrics import TTFT_PARTS
from sim.result import Run
from sim.student import CONFIDENCE, half_width

BAND = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))  # percentiles of the runs


@dataclass(frozen=True, eq=False)
class Member:
    """What is kept of one of the runs; its tables lie in a folder of its own, where files are written at all."""

    seed: int
    verdict: str
    decisions: int
    summary: Mapping[str, Any]
    quantiles: Mapping[str, Quantiles]
    parts: Floats | None  # of the TTFT, the mean of each (ms), where anybody got a first token

    @classmethod
    def of(cls, run: Run) -> Member:
        latencies, parts = all_quantiles(run), mean_ttft_parts(run, [*TTFT_PARTS])
        return cls(run.scenario.seed, run.verdict, run.decisions, run.summary, latencies, parts)


class Ensemble:
    """All members, in the order of their seeds; of `wanted` ones, so that fewer are there after an interrupt."""

    def __init__(self, members: Sequence[Member], wanted: int) -> None:
        self.members = sorted(members, key=lambda member: member.seed)
        self.wanted = wanted

    @property
    def verdict(self) -> str:
        """Interrupted if some are missing, else that of the first that did not finish, if there is one."""
        if len(self.members) < self.wanted:
            return "interrupted"
        return next((m.verdict for m in self.members if m.verdict != "finished"), "finished")

    @property
    def decisions(self) -> int:
        """Equal where no plan of any member ever differed."""
        return hash(tuple(member.decisions for member in self.members))

    @property
    def first(self) -> str:
        """What is shown where only one can be."""
        return f"seed {self.members[0].seed}"

    @property
    def parts(self) -> Mapping[str, float]:
        """Of the TTFT: the mean of each (ms), over the members where anybody got a first token."""
        known = [member.parts for member in self.members if member.parts is not None]
        return dict(zip(TTFT_PARTS, np.mean(known, axis=0), strict=True)) if known else {}

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a member: its seed, its verdict, and its figures."""
        return pd.DataFrame([{"seed": m.seed, "verdict": m.verdict, **m.summary} for m in self.members])

    @cached_property
    def half_widths(self) -> dict[str, float | None]:
        """Of the 95 % confidence intervals of the means; None of what is undefined, and of a single member."""
        return {name: half_width(values) if values else None for name, values in self._figures.items()}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """As in `summary.json`: the mean of each figure, undefined where one member's is, and where it comes from."""
        means = {name: _mean(values) if values else None for name, values in self._figures.items()}
        seeds = [member.seed for member in self.members]
        about = {"number": len(seeds), "seeds": seeds, "confidence": CONFIDENCE, "half_width": self.half_widths}
        return {**means, "replications": about}

    def written(self, name: str, number: Callable[[float], str]) -> str:
        """A mean with its interval."""
        mean, half = self.summary[name], self.half_widths[name]
        return "-" if mean is None else number(mean) if half is None else f"{number(mean)} ± {number(half)}"

    @property
    def _figures(self) -> dict[str, list[float]]:
        """What each member has; nothing where one of them has none."""
        columns = {name: [member.summary[name] for member in self.members] for name in self.members[0].summary}
        return {name: [] if None in values else values for name, values in columns.items()}


def _mean(values: Sequence[float]) -> float:
    """What is the same in all of them stays as it is: a count, say."""
    return values[0] if all(value == values[0] for value in values) else float(np.mean(values))
