"""Times shapes in rounds, each in another order, so that a device that slows down does not look like large shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import mean, median, stdev

import numpy as np

from executor.calibrate_shapes import STAGES, Shape


@dataclass
class Timing:
    """One shape, and what it took each time."""

    shape: Shape
    samples: list[int] = field(default_factory=list)  # nanoseconds

    @property
    def cv(self) -> float:
        """Standard deviation as a part of the mean; 0 where there is but one sample."""
        return stdev(self.samples) / mean(self.samples) if len(self.samples) > 1 else 0.0

    def row(self) -> dict[str, str | int | float]:
        """As it stands in a CSV of timings: the median, which one disturbance does not move."""
        return {
            "stage": self.shape.stage,
            **self.shape.counts(),
            "total_ms": float(f"{median(self.samples) / 1e6:.6g}"),
            "repeats": len(self.samples),
            "cv": round(self.cv, 4),
        }


def time_in_rounds(
    shapes: list[Shape], timed: Callable[[Shape], int], *, repeats: int, seed: int, done: Callable[[int], None]
) -> tuple[list[Timing], bool]:
    """Every shape once to warm up, then `repeats` times; what could be timed, and whether it was interrupted.

    `timed` gives a shape's nanoseconds; `done` is told how many have been run.
    """
    timings = [Timing(shape) for shape in shapes]
    interrupted = False
    try:
        for number, (timing, warm) in enumerate(_order(timings, repeats, seed)):
            done(number)
            elapsed = timed(timing.shape)
            if warm:
                timing.samples.append(elapsed)
    except KeyboardInterrupt:
        interrupted = True
    return [timing for timing in timings if timing.samples], interrupted


def _order(timings: list[Timing], repeats: int, seed: int) -> Iterator[tuple[Timing, bool]]:
    """The first round, largest first, is not counted: it compiles, captures and takes what memory is needed."""
    for timing in sorted(timings, key=lambda t: -_size(t.shape)):
        yield timing, False
    rng = np.random.default_rng(seed)
    for _ in range(repeats):
        for index in rng.permutation(len(timings)):
            yield timings[index], True


def _size(shape: Shape) -> int:
    counts = shape.counts()
    return counts["images"] * counts["tokens"] + counts["chunk"] + counts["decodes"]


def noise(timings: list[Timing]) -> dict[str, float]:
    """Per stage, the median over its shapes of the coefficient of variation between repeats, in percent."""
    cvs = {stage: [t.cv for t in timings if t.shape.stage == stage and len(t.samples) > 1] for stage in STAGES}
    return {stage: round(100 * median(values), 1) for stage, values in cvs.items() if values}
