"""Plots of runs for whoever explores them in Python: `r.plot.ttft()`, `r.plot.timeline(2, 5)`."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from sim.complaints import nearest
from sim.plot_breakdown import ttft_breakdown
from sim.plot_glance import glance
from sim.plot_latencies import latency_cdfs
from sim.plot_requests import request_gantt
from sim.plot_stalls import stalls
from sim.plot_timeline import Window, iteration_timeline, occupancy
from sim.plotted import OneEngine, PlottedRun, Runs, SeveralEngines
from sim.result import Run
from workloads.errors import InputError


class ComparedPlots:
    """What is drawn of one run as of several, each a line, a bar or a panel."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def ttft(self) -> Figure:
        """Distribution and tail of the time to first token, in milliseconds."""
        return latency_cdfs(self.runs, ["ttft"])

    def itl(self) -> Figure:
        """Distribution and tail of the gaps between tokens, in milliseconds."""
        return latency_cdfs(self.runs, ["itl"])

    def tpot(self) -> Figure:
        """Distribution and tail of the time per output token, in milliseconds."""
        return latency_cdfs(self.runs, ["tpot"])

    def e2el(self) -> Figure:
        """Distribution and tail of the time from arrival to the last token, in milliseconds."""
        return latency_cdfs(self.runs, ["e2el"])

    def latencies(self) -> Figure:
        """All four."""
        return latency_cdfs(self.runs)

    def breakdown(self) -> Figure:
        """Where the time to first token goes: its mean parts."""
        return ttft_breakdown(self.runs)

    def stalls(self) -> Figure:
        """What makes decodes wait: durations of iterations against their encoder tokens."""
        return stalls(self.runs)

    def glance(self) -> Figure:
        """TTFT, ITL and the parts of the TTFT, small and side by side."""
        return glance(self.runs)


class RunPlots(ComparedPlots):
    """Of one run also what happened over time. Of several engines, `engine` names the one to draw."""

    def __init__(self, run: Run) -> None:
        super().__init__([(run.scenario.policy.kind, run)])
        self._label, self._run = self.runs[0]

    def timeline(self, start: float | None = None, end: float | None = None, *, engine: str | None = None) -> Figure:
        """What each iteration carried, from `start` to `end` in seconds; left out, all of it."""
        return iteration_timeline(self._label, self._of(engine), _window(start, end))

    def occupancy(self, start: float | None = None, end: float | None = None, *, engine: str | None = None) -> Figure:
        """KV blocks, encoder rows and requests, from `start` to `end` in seconds; left out, all of it."""
        return occupancy(self._label, self._of(engine), _window(start, end))

    def gantt(self) -> Figure:
        """What each request did; of a larger run, its first 60."""
        return request_gantt(self._label, self._run)

    def _of(self, engine: str | None) -> PlottedRun:
        """Raises InputError where that is not clear."""
        engines = self._engines()
        if engine is None and len(engines) <= 1:
            return self._run
        if engine in engines:
            return engines[engine]
        if engine is None:
            raise InputError(f"engine: the run has several; one of: {', '.join(engines)}")
        raise InputError(f"engine: there is no {engine!r}{nearest(engine, list(engines))}")

    def _engines(self) -> dict[str, OneEngine]:
        several = self._run.views() if isinstance(self._run, SeveralEngines) else []
        return {view.engine: view for view in several}


def _window(start: float | None, end: float | None) -> Window | None:
    if start is None and end is None:
        return None
    window = (-math.inf if start is None else start, math.inf if end is None else end)
    if not window[0] < window[1]:
        raise InputError(f"a window ends after it starts: {start} to {end}")
    return window
