"""A finished run: its tables as DataFrames, its latencies, its summary, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from policies.limits import Limits
from sim.allocator import AllocatorFigures
from sim.engine_use import EngineUse
from sim.iteration_pieces import COLUMNS, Columns
from sim.itl import pooled_itl
from sim.memory_replay import MemorySizes, Storage, memory_figures, memory_summary
from sim.metrics import load_verdict, summarise
from sim.request_log import ONLY, HandedOver, at_once
from sim.samples import WeightedSample
from sim.slo import SLO
from sim.world import World

if TYPE_CHECKING:
    from sim.ensemble import Ensemble
    from sim.run_plots import RunPlots

Ints = NDArray[np.int64]


class Run:
    """What a simulation gives back. Tables have seconds, the summary has milliseconds where its keys say so."""

    engines: tuple[str, ...] = (ONLY,)  # their names
    _handed_over: HandedOver = staticmethod(at_once)  # when clients got what was made at a time

    def __init__(self, world: World, *, verdict: str, notes: list[str], blockers: dict[int, str]) -> None:
        self.scenario = world.scenario  # resolved: every budget a number
        self.profile = world.profile
        self.origin = world.origin  # simulated, measured or executed
        self.source = world.source  # of its times, in a line
        self.verdict = verdict  # finished, stalled, interrupted or out of memory
        self.notes = notes  # what was raised or clamped
        self.blockers = blockers  # of a stalled run: request -> what it waits for
        self.decisions = world.recorder.decisions.digest  # equal where no plan ever differed
        self.allocation_failures = world.backend.allocation_failures
        self.peak_encoder_bytes = world.backend.peak_encoder_bytes
        self.spans = world.spans()
        self._handed_over = world.front_end.handed_over
        self.ensemble: Ensemble | None = None  # where it stands for several
        self.num_iterations = world.recorder.iterations.num_iterations
        self._memory_log = world.memory_log
        self._log = world.recorder.iterations
        self._requests = world.recorder.requests

    def stand_for(self, ensemble: Ensemble) -> None:
        """From now on its summary, verdict and decisions are those of all; its tables stay its own."""
        self.ensemble, self.summary = ensemble, ensemble.summary
        self.verdict, self.decisions = ensemble.verdict, ensemble.decisions

    @property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """Of the summary's figures, 95 %, where they are means of several runs."""
        return {} if self.ensemble is None else self.ensemble.intervals

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def partial(self) -> bool:
        return self.verdict == "interrupted"

    @property
    def slo(self) -> SLO:
        return self.scenario.slo

    @property
    def limits(self) -> Limits:
        return self.scenario.engine

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, in the order of ids."""
        return self._requests.table(self._handed_over)

    def iteration_pieces(self, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
        """The iterations table, or some of its columns, in pieces, for whoever needs no more at a time."""
        return self._log.pieces(self._blocks_taken, names)

    @cached_property
    def _blocks_taken(self) -> NDArray[np.int64]:
        return self._requests.blocks_taken(self._log.decode_steps, self.limits.block_size)

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """One row an iteration; empty where the scenario does not keep them."""
        pieces = list(self.iteration_pieces())
        columns = {name: np.concatenate([p[name] for p in pieces] or [np.zeros(0)]) for name in COLUMNS}
        table = pd.DataFrame(columns, copy=False)
        given = [piece.get("engine", np.zeros(len(piece["start"]), np.int16)) for piece in pieces]
        numbers = np.concatenate(given or [np.zeros(0)]).astype(np.int16)
        table["engine"] = pd.Categorical.from_codes(numbers, pd.Index(self.engines))
        return table

    @cached_property
    def itl_sample(self) -> WeightedSample:
        """Gaps between successive tokens of finished requests, as values with counts (ns)."""
        _, segments, ends = self.token_segments()
        return pooled_itl(segments, ends, with_ends=self._warms_up)

    @property
    def _warms_up(self) -> bool:
        return self.scenario.measure.warmup > 0 or self.scenario.measure.warmup_requests > 0

    @property
    def itl(self) -> NDArray[np.float64]:
        """Every gap between two tokens of one request, in seconds, pooled over all requests."""
        return self.itl_sample.expand()

    def token_segments(self) -> tuple[Ints, Ints, Ints]:
        """Ids of finished requests, their segments in the same order (see `sim.itl`), ends of decode steps (ns).

        Times are those at which clients got the tokens.
        """
        return self._requests.finished_ids(), *self._as_handed_over(
            self._requests.segments(), self._log.decode_log()[0]
        )

    def _as_handed_over(self, segments: Ints, ends: Ints) -> tuple[Ints, Ints]:
        segments[:, 0] = self._handed_over(segments[:, 0])
        return segments, self._handed_over(ends)

    def _use(self, start: float) -> EngineUse:
        return self._log.use(self._blocks_taken, start)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """vLLM's `bench serve` keys, and those of encoder and cache."""
        return self._summary()

    def _decode_log(self) -> tuple[Ints, NDArray[Any]]:
        """When clients got how many tokens."""
        ends, counts = self._log.decode_log()
        return self._handed_over(ends), counts

    def _summary(self) -> dict[str, Any]:
        measure = self.scenario.measure
        figures = summarise(
            self.requests,
            self.itl_sample,
            engine=self._use if measure.iterations else None,
            slo=self.slo,
            warmup_requests=measure.warmup_requests,
            warmup=measure.warmup,
            decode_steps=self._decode_log(),
            num_engines=len(self.engines),
            spans=self.spans,
        )
        memory = {"allocation_failures": self.allocation_failures, "peak_encoder_bytes": self.peak_encoder_bytes}
        sent = {"transferred_embedding_bytes": 0, "transferred_kv_bytes": 0, "link_busy_fraction": None}
        return {**sent, **figures, **memory, **memory_summary(self.memory or {})}

    @cached_property
    def memory(self) -> dict[Storage, AllocatorFigures] | None:
        """What PyTorch's allocator would have made of it, by storage; None where the scenario does not ask for it."""
        if self._memory_log is None:
            return None
        events = self._memory_log.events
        sizes = MemorySizes.of_run(self.limits, self.scenario.model, self.profile, events)
        return memory_figures(events, sizes)

    @cached_property
    def load(self) -> str | None:
        """`offered 12.0 requests/s, served 9.1: the queue grows`, where that is so."""
        return None if self.scenario.workload.closed_loop else load_verdict(self.requests)

    @property
    def plot(self) -> RunPlots:
        """`r.plot.ttft()`, `r.plot.timeline(2, 5)` and more, as figures."""
        from sim.run_plots import RunPlots  # with matplotlib, which takes half a second

        return RunPlots(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures, and small plots of them."""
        from sim.run_html import runs_html

        return runs_html([(self.scenario.policy.kind, self)])

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.scenario.policy.kind}, {len(self.requests)} requests, {self.verdict}>"
