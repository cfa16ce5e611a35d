"""A run as a timeline for https://ui.perfetto.dev, made of nothing but its tables.

Every engine is a process with four lanes and its counters; the front end one with as many lanes as requests overlap in
it. A flow leads from each arrival to the first token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.perfetto_engine import LANES, PREFILL, Iterations, engine_counters, engine_slices, iterations_of
from sim.perfetto_events import Event, flow, lanes, named, nanoseconds, slices
from sim.scenario import Scenario

Ints = NDArray[np.int64]

FRONT_END = 0  # its process; engines are numbered from 1
MOST = 100_000  # iterations of a timeline
MOST_LANES = 64  # of the front end
LEAST = 1_000  # nanoseconds that a request is shown in the front end, however short it was there
SIDE_STREAM = "encoder_busy_fraction"  # what a side stream calls the times in which it was busy


class Window(NamedTuple):
    """What is shown, in seconds from the run's start."""

    start: float = 0.0
    end: float = np.inf


class TracedRun(Protocol):
    """What a timeline asks of a run."""

    scenario: Scenario
    spans: dict[str, list[tuple[int, int]]]

    @property
    def engines(self) -> Sequence[str]: ...
    @property
    def requests(self) -> pd.DataFrame: ...
    @property
    def iterations(self) -> pd.DataFrame: ...


class Timeline:
    """What lies in a window of a run, up to its `most`-th iteration."""

    def __init__(self, run: TracedRun, window: Window, most: int = MOST) -> None:
        table = run.iterations
        inside = table[(table["end"] > window.start) & (table["start"] < window.end)]
        self._run = run
        self._iterations = inside.iloc[:most]
        self._until = float(inside["start"].iloc[most]) if len(inside) > most else window.end
        self._from = window.start

    @property
    def left_out(self) -> list[str]:
        """What a whole timeline would have beyond this one."""
        told = []
        shown, number = len(self._iterations), len(self._run.iterations)
        if shown < number:
            end = min(self._until, float(self._run.iterations["end"].max()))
            told.append(f"{shown:,} of {number:,} iterations, from {self._from:g} to {end:g} s")
        if hidden := int((self._lane == 0).sum()):
            told.append(f"{hidden:,} requests overlap more than {MOST_LANES - 1} others in the front end")
        return told

    def events(self) -> Iterator[Event]:
        """Names, then slices and counters, then flows, which need their slices."""
        requests = {lane: f"requests {lane}" for lane in range(1, int(self._lane.max(initial=0)) + 1)}
        yield from named(FRONT_END, "front end", requests)
        for process, name in enumerate(self._run.engines, 1):
            yield from named(process, "engine" if len(self._run.engines) == 1 else name, LANES)
        yield from self._arrivals()
        for process, name in enumerate(self._run.engines, 1):
            yield from engine_slices(process, self._of(name), self._spans)
            yield from engine_counters(process, self._of(name), self._run.scenario.model.embedding_row_bytes)
        yield from self._flows()

    @cached_property
    def _requests(self) -> pd.DataFrame:
        """Those that were in the front end at some time, in the order of arrival."""
        table = self._run.requests
        left = table["prepared"].fillna(table["finish"]).fillna(table["arrival"])
        inside = (left >= self._from) & (table["arrival"] < self._until)
        return table[inside].assign(left=left[inside]).sort_values("arrival", kind="stable")

    @cached_property
    def _lane(self) -> Ints:
        """Of each request, in the front end."""
        starts, ends = (nanoseconds(self._requests[name]) for name in ("arrival", "left"))
        return np.array(lanes(starts.tolist(), np.maximum(ends, starts + LEAST).tolist(), MOST_LANES), np.int64)

    def _arrivals(self) -> Iterator[Event]:
        table = self._requests
        starts, ends = (nanoseconds(table[name]) for name in ("arrival", "left"))
        names = ["request_id", "prompt_tokens", "output_tokens", "num_items", "ttft", "e2el", "status"]
        rows = [{str(name): _plain(value) for name, value in row.items()} for row in table[names].to_dict("records")]
        for lane in range(1, int(self._lane.max(initial=0)) + 1):
            some = np.flatnonzero(self._lane == lane)
            args = [rows[place] for place in some.tolist()]
            words = [f"request {row['request_id']}" for row in args]
            durations = np.maximum(ends[some] - starts[some], LEAST)
            yield from slices(FRONT_END, lane, starts[some], durations, words, args)

    def _of(self, engine: str) -> Iterations:
        """An engine's."""
        return iterations_of(self._iterations[self._iterations["engine"] == engine])

    @cached_property
    def _spans(self) -> list[tuple[int, int]] | None:
        """When the batches of a side stream ran, where there is one."""
        spans = self._run.spans.get(SIDE_STREAM)
        if spans is None:
            return None
        return [span for span in spans if span[1] > self._from * 1e9 and span[0] < self._until * 1e9]

    def _flows(self) -> Iterator[Event]:
        """To the prefill that gave the first token: it ended when the engine had it, before it was handed over."""
        prefills = {name: self._prefills(name) for name in self._run.engines}
        table = self._requests.assign(lane=self._lane)
        given = nanoseconds((table["first_token"] - table["delivery"]).fillna(-1.0))
        for row, time in zip(table[["request_id", "arrival", "engine", "lane"]].to_dict("records"), given, strict=True):
            for process, name in enumerate(self._run.engines, 1):
                if row["lane"] and name in str(row["engine"]).split(">") and int(time) in prefills[name]:
                    start = FRONT_END, int(row["lane"]), round(row["arrival"] * 1e9)
                    yield from flow(int(row["request_id"]), "first token", start, (process, PREFILL, int(time) - 1))

    def _prefills(self, engine: str) -> set[int]:
        """When iterations with a chunk ended."""
        table = self._of(engine)
        return set(table["end"][(table["num_prefill_tokens"] > 0) & (table["compute"] > 0)].tolist())


def _plain(value: Any) -> Any:
    """As JSON has it: what never came is null."""
    return None if isinstance(value, float) and np.isnan(value) else value
