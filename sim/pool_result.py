"""A finished run of several engines: their tables in one, and every figure over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from policies.encode_only import EncodeState
from policies.limits import Limits
from sim.engine_use import EngineUse
from sim.iteration_pieces import COLUMNS, Columns
from sim.pool_engine import PoolEngine, PoolRecorder
from sim.pool_world import PooledWorld
from sim.result import Run
from sim.slo import SLO

Ints = NDArray[np.int64]


class PooledRun(Run):
    """Iterations of all engines in the order of their starts, each with its engine's name."""

    def __init__(self, world: PooledWorld, **told: Any) -> None:
        super().__init__(world, **told)
        self._cluster = world.cluster
        self._recorders = [engine.recorder for engine in world.cluster.engines]
        self.engines = tuple(engine.name for engine in world.cluster.engines)
        self.decisions = hash(tuple(recorder.decisions.digest for recorder in self._recorders))
        self.num_iterations = sum(recorder.iterations.num_iterations for recorder in self._recorders)
        self.allocation_failures = sum(backend.allocation_failures for backend in world.backends)
        self.peak_encoder_bytes = max(backend.peak_encoder_bytes for backend in world.backends)

    @property
    def limits(self) -> Limits:
        """The prefill engines', but the largest KV pool and the largest encoder cache of all."""
        limits = [engine.state.limits for engine in self._cluster.engines]
        rows = [one.encoder_cache_rows for one in limits]
        sizes = [row for row in rows if isinstance(row, int)]
        most = max(sizes) if len(sizes) == len(rows) else "unbounded"
        blocks = max(one.num_kv_blocks or 0 for one in limits)
        prefill = self._cluster.pools["prefill"][0].state.limits
        return prefill.model_copy(update={"num_kv_blocks": blocks, "encoder_cache_rows": most})

    @cached_property
    def requests(self) -> pd.DataFrame:
        tables = [table for recorder in self._recorders if len(table := self._table(recorder))]
        together = pd.concat(tables or [self._table(self._recorders[0])])
        return together.sort_values("request_id", ignore_index=True)

    def _table(self, recorder: PoolRecorder) -> pd.DataFrame:
        return recorder.requests.table(self._handed_over)

    def iteration_pieces(self, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
        """In one piece, since engines' iterations interleave; with the engine's number."""
        wanted = {*names, "start"}
        tables = [self.of_engine(number, sorted(wanted - {"iteration"})) for number in range(len(self.engines))]
        sizes = [len(table["start"]) for table in tables]
        numbers = np.repeat(np.arange(len(tables), dtype=np.int16), sizes)
        starts = np.concatenate([table["start"] for table in tables])
        order = np.lexsort((numbers, starts))
        piece: Columns = {name: np.arange(len(order)) for name in names if name == "iteration"}
        for name in names:
            if name != "iteration":
                piece[name] = np.concatenate([table[name] for table in tables])[order]
        if self.scenario.measure.iterations and len(order):
            yield {name: piece[name] for name in names} | {"engine": numbers[order]}

    def of_engine(self, number: int, names: Sequence[str] = COLUMNS) -> Columns:
        """One engine's iterations."""
        pieces = list(self._recorders[number].iterations.pieces(self._blocks_taken_by(number), names))
        return {name: np.concatenate([piece[name] for piece in pieces] or [np.zeros(0)]) for name in names}

    def _blocks_taken_by(self, number: int) -> Ints:
        engine, recorder = self._cluster.engines[number], self._recorders[number]
        return recorder.requests.blocks_taken(recorder.iterations.decode_steps, engine.state.limits.block_size)

    def _use(self, start: float) -> EngineUse:
        logs = [recorder.iterations for recorder in self._recorders]
        return EngineUse.of_all(log.use(self._blocks_taken_by(number), start) for number, log in enumerate(logs))

    def views(self) -> list[EngineView]:
        """Each engine by itself, for plots over time."""
        return [EngineView(self, engine) for engine in self._cluster.engines]

    def token_segments(self) -> tuple[Ints, Ints, Ints]:
        """Decode steps are numbered over all engines, one after the other."""
        ids, segments, ends, done = [], [], [], 0
        for recorder in self._recorders:
            rows = recorder.requests.segments()
            rows[:, 1] += done
            ids.append(recorder.requests.finished_ids())
            segments.append(rows)
            ends.append(recorder.iterations.decode_log()[0])
            done += recorder.iterations.decode_steps
        return np.concatenate(ids), *self._as_handed_over(np.concatenate(segments), np.concatenate(ends))

    def _decode_log(self) -> tuple[Ints, NDArray[Any]]:
        """In the order of time."""
        logs = [recorder.iterations.decode_log() for recorder in self._recorders]
        ends, counts = (np.concatenate(parts) for parts in zip(*logs, strict=True))
        order = np.argsort(ends, kind="stable")
        return self._handed_over(ends[order]), counts[order]

    def _summary(self) -> dict[str, Any]:
        sent = {"transferred_embedding_bytes": self._cluster.sent_rows_bytes}
        sent |= {"transferred_kv_bytes": self._cluster.sent_kv_bytes}
        return super()._summary() | sent


class EngineView:
    """What plots over time ask of a run, of one engine."""

    def __init__(self, run: PooledRun, engine: PoolEngine) -> None:
        self.name, self.origin = run.name, run.origin
        self.engine = engine.name
        self.slo: SLO = run.slo
        limits = engine.state.limits
        has_kv = not isinstance(engine.state, EncodeState)
        self.limits = limits if has_kv else limits.model_copy(update={"num_kv_blocks": None})
        self.itl_sample = run.itl_sample
        table = run.iterations
        self.iterations = table[table["engine"] == engine.name]
        self.requests = run.requests
