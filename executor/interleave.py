"""A calibration in the midst of a live run: the shapes that it runs are timed under the conditions that it runs under.

Beside a neighbour that comes and goes, timings of another hour are off by a quarter; those of the same minutes are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import torch

from executor.calibrate_batches import Stopwatch
from executor.calibrate_file import Calibration, Host
from executor.calibrate_plans import shapes_of
from executor.calibrate_rounds import Timing
from executor.calibrate_shapes import STAGES, Shape
from executor.torch_backend import TorchBackend
from policies.plan import IterationPlan
from sim.backend import Around, Outcome
from sim.shapes import spread

RECENT = 48  # shapes of a stage to draw from
SIDE = 224  # pixels of an image where the run has none
MIXED_ANEW = 4  # each fourth shape of a stage takes its parts from different iterations


class Interleaved(Around[TorchBackend]):
    """A live backend as it is; after every `every` iterations one shape is timed, off the run's clock and meter.

    The stages take turns, and of each a recent shape is drawn, so that sums over rows stand for sums over the run. Then
    the run's own last shape runs again, so that its next iteration finds in the caches what it would have found: a
    decode right after an encoder call takes a tenth longer on a CPU.
    """

    def __init__(self, backend: TorchBackend, every: int, seed: int = 0) -> None:
        super().__init__(backend)
        self.meter = backend.meter
        self._every = every
        self._rng = np.random.default_rng([seed, 17])
        self._stopwatch = Stopwatch(backend.runner, backend.timer, backend.graphs, seed)
        self._recent = {stage: deque[Shape](maxlen=RECENT) for stage in STAGES}
        image = backend.runner.loaded.shape.item(None, "image", SIDE, SIDE).grid
        self._images = [Shape(items=(image,) * count) for count in (1, 2, 4)]
        self._turns = cycle(STAGES)
        self._num_drawn = dict.fromkeys(STAGES, 0)
        self._last = Shape()  # of the run
        self._timings: list[Timing] = []
        self._host: list[int] = []  # nanoseconds of each live iteration

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Any:
        for shape in shapes_of(plan):
            self._recent[shape.stage].append(shape)
            self._last = shape
        return self.backend.launch(plan, max_iterations, horizon)

    def wait(self, handle: Any) -> Outcome:
        outcome = self.backend.wait(handle)
        self._host.append(outcome.host)
        if len(self._host) % self._every == 0:
            self._time_one()
        return outcome

    def _time_one(self) -> None:
        """A stage's first is not counted: it warms up."""
        stage = next(stage for stage in self._turns if self._pool(stage))
        shape = self._draw(stage)
        try:
            elapsed = self._stopwatch.time(shape)
            self._stopwatch.time(self._last)
        except torch.OutOfMemoryError:  # the run is what matters
            return
        if self._num_drawn[stage]:
            self._timings.append(Timing(shape, [elapsed]))
        self._num_drawn[stage] += 1

    def _draw(self, stage: str) -> Shape:
        anew = self._num_drawn[stage] % MIXED_ANEW == MIXED_ANEW - 1
        one = self._any(stage)
        other = self._any(stage) if anew else one
        if stage == "encoder":  # copies of one item: a row of the CSV tells of no others
            return Shape(items=(one.items[self._rng.integers(len(one.items))],) * len(other.items))
        return replace(one, contexts=other.contexts) if stage == "mixed" else _crossed(one, other)

    def _any(self, stage: str) -> Shape:
        pool = self._pool(stage)
        return pool[self._rng.integers(len(pool))]

    def _pool(self, stage: str) -> Sequence[Shape]:
        """Recent shapes of the stage, or what stands in for them where the run has none: a profile needs all stages."""
        recent = self._recent
        if recent[stage] or stage == "encoder":
            return recent[stage] or self._images
        if stage == "prefill":
            return [replace(shape, contexts=()) for shape in recent["mixed"]]
        if stage == "decode":
            parts = recent["mixed"] or [replace(shape, contexts=tuple(shape.totals)) for shape in recent["prefill"]]
            return [Shape(contexts=shape.contexts) for shape in parts]
        pairs = zip(recent["prefill"], recent["decode"], strict=False)
        return [replace(one, contexts=other.contexts) for one, other in pairs]

    def calibration(self, name: str, clock: str, partial: bool) -> Calibration:
        """What was timed in the run of that name."""
        mean = float(np.mean(self._host)) / 1e6 if self._host else 0.0
        return Calibration(
            loaded=self.backend.runner.loaded,
            clock=clock,
            rows=[timing.row() for timing in self._timings],
            host=Host(mean, f"mean of the {len(self._host)} iterations of a live run of {name}"),
            how=f"shapes of a live run of {name}, one timed after every {self._every} of its iterations",
            noise=self._noise(),
            partial=partial,
        )

    def _noise(self) -> dict[str, float]:
        """Per stage in percent, of times of near-equal shape (`sim.shapes.spread`)."""
        found = {}
        for stage in STAGES:
            own = [timing for timing in self._timings if timing.shape.stage == stage]
            shapes = np.array([list(timing.shape.counts().values()) for timing in own], float)
            percent = spread(np.array([timing.samples[0] for timing in own], float), shapes)
            found |= {} if percent is None else {stage: round(percent, 1)}
        return found


def _crossed(one: Shape, other: Shape) -> Shape:
    """As much to do as the one has, on contexts as the other has."""
    if one.chunks:
        cached = [other.chunks[index % len(other.chunks)][1] for index in range(len(one.chunks))]
        chunks = tuple((tokens, before) for (tokens, _), before in zip(one.chunks, cached, strict=True))
        return replace(one, chunks=chunks)
    return replace(
        one, contexts=tuple(other.contexts[index % len(other.contexts)] for index in range(len(one.contexts)))
    )
