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

    what: str  # its members are

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
    def means(self) -> dict[str, float | None]:
        """Of each figure; None where one member's is undefined."""
        return {name: _mean(values) if values else None for name, values in self.figures.items()}

    @cached_property
    def figures(self) -> dict[str, list[float]]:
        """What each member has; nothing where one of them has none."""
        columns = {name: [member.summary[name] for member in self.members] for name in self.members[0].summary}
        return {name: [] if None in values else values for name, values in columns.items()}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """Of each figure; None of what is undefined, and of a single member."""
        raise NotImplementedError

    @cached_property
    def summary(self) -> dict[str, Any]:
        """As in `summary.json`: means, and where they come from."""
        raise NotImplementedError

    def written(self, name: str, number: Callable[[float], str]) -> str:
        """A mean with its interval."""
        raise NotImplementedError

    @property
    def _seeds(self) -> dict[str, Any]:
        seeds = [member.seed for member in self.members]
        return {"number": len(seeds), "seeds": seeds, "confidence": CONFIDENCE}


class Replications(Ensemble):
    """Of successive seeds: how sure the mean over all seeds is."""

    what = "runs with successive seeds, ± half of their 95 % confidence interval"

    @cached_property
    def half_widths(self) -> dict[str, float | None]:
        """Of the 95 % confidence intervals of the means."""
        return {name: half_width(values) if values else None for name, values in self.figures.items()}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        return {name: self._interval(self.means[name], half) for name, half in self.half_widths.items()}

    @staticmethod
    def _interval(mean: float | None, half: float | None) -> tuple[float, float] | None:
        return None if mean is None or half is None else (mean - half, mean + half)

    @cached_property
    def summary(self) -> dict[str, Any]:
        return {**self.means, "replications": self._seeds | {"half_width": self.half_widths}}

    def written(self, name: str, number: Callable[[float], str]) -> str:
        mean, half = self.means[name], self.half_widths[name]
        return "-" if mean is None else f"{number(mean)} ± {number(half)}" if half else number(mean)


class Draws(Ensemble):
    """Of successive seeds, each with another draw of what the profile leaves uncertain: where a single run may lie."""

    what = "draws of seed and of what the profile leaves uncertain; in parentheses where 95 % of them lie"

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        return {name: _band(values) if len(values) > 1 else None for name, values in self.figures.items()}

    @cached_property
    def summary(self) -> dict[str, Any]:
        low, high = ({name: pair and pair[side] for name, pair in self.intervals.items()} for side in (0, 1))
        return {**self.means, "uncertainty": self._seeds | {"low": low, "high": high}}

    def written(self, name: str, number: Callable[[float], str]) -> str:
        mean, pair = self.means[name], self.intervals[name]
        if mean is None:
            return "-"
        return (
            f"{number(mean)} ({number(pair[0])} to {number(pair[1])})" if pair and pair[0] < pair[1] else number(mean)
        )


def _band(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, BAND)
    return float(low), float(high)


def _mean(values: Sequence[float]) -> float:
    """What is the same in all of them stays as it is: a count, say."""
    return values[0] if all(value == values[0] for value in values) else float(np.mean(values))
