"""The teacher-forced check: the cost model prices the live run's own plans, stage by stage and shape by shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost_model import CostModel
from sim.plan_line import PlanLine
from sim.shapes import coarse, spread, told

Floats = NDArray[np.float64]
Row = tuple[int, int, tuple[float, ...]]  # measured and predicted ns, shape

COORDINATES = {
    "encoder": ("items", "tokens"),
    "prefill": ("tokens", "cached"),
    "decode": ("decodes", "context"),
    "mixed": ("prefill tokens", "decodes"),
    "host": ("decodes",),
}


class Errors(NamedTuple):
    """Of some iterations. No iteration is left out as an outlier."""

    iterations: int
    measured_ms: float  # mean
    predicted_ms: float
    error_percent: float | None  # of the summed time
    mape_percent: float | None  # mean of absolute errors, of iterations that took any time
    noise_percent: float | None  # see `sim.shapes.spread`; no model can err less than that


class Stage(NamedTuple):
    """Iterations of one kind."""

    measured: Floats  # ns
    predicted: Floats
    shapes: Floats  # a row of COORDINATES for each

    def errors(self, where: NDArray[np.bool_] | None = None) -> Errors:
        measured, predicted, shapes = (part if where is None else part[where] for part in self)
        some = measured > 0
        absolute = np.abs(predicted[some] / measured[some] - 1)
        total = float(measured.sum())
        return Errors(
            len(measured),
            float(measured.mean() / 1e6),
            float(predicted.mean() / 1e6),
            100 * (float(predicted.sum()) / total - 1) if total else None,
            100 * float(absolute.mean()) if some.any() else None,
            spread(measured / predicted if (predicted > 0).all() else measured, shapes),
        )


class Forced(NamedTuple):
    """All stages that the live run has, and how many iterations were left out because they failed somebody."""

    stages: dict[str, Stage]
    num_failed: int

    def content(self) -> dict[str, Any]:
        """As it stands in `compare.json`."""
        stages = {
            name: {
                **stage.errors()._asdict(),
                "shapes": [{"shape": s, **e._asdict()} for s, e in by_shape(name, stage)],
            }
            for name, stage in self.stages.items()
        }
        return {"stages": stages, "iterations_left_out": self.num_failed}


def forced(plans: Sequence[PlanLine], cost: CostModel) -> Forced:
    """Price every iteration that failed nobody."""
    rows: dict[str, list[Row]] = {name: [] for name in COORDINATES}
    sound = [line for line in plans if not line.failed]
    for line in sound:
        for stage, row in _rows(line, cost):
            rows[stage].append(row)
    stages = {name: _stage(of_stage) for name, of_stage in rows.items() if of_stage}
    return Forced(stages, len(plans) - len(sound))


def by_shape(name: str, stage: Stage) -> list[tuple[str, Errors]]:
    """Errors of each coarse shape, smallest first."""
    kinds, kind = np.unique(coarse(stage.shapes), axis=0, return_inverse=True)
    labels = [told(COORDINATES[name], tuple(exponents)) for exponents in kinds.tolist()]
    return [(label, stage.errors(kind.reshape(-1) == index)) for index, label in enumerate(labels)]


def _stage(rows: Sequence[Row]) -> Stage:
    measured, predicted, shapes = zip(*rows, strict=True)
    return Stage(np.array(measured, float), np.array(predicted, float), np.array(shapes, float))


def _rows(line: PlanLine, cost: CostModel) -> Iterable[tuple[str, Row]]:
    host, encode, compute = line.elapsed_ns
    yield "host", (host, cost.host, (line.num_decodes,))
    if line.encode:
        calls = [frames(call) for call in line.encoder_calls()]
        predicted = sum(cost.encode(tokens, squares) for tokens, squares in calls)
        yield "encoder", (encode, predicted, (len(line.encode), sum(tokens for tokens, _ in calls)))
    if line.prefill or line.num_decodes:
        chunks = [(tokens, cached) for _, tokens, cached in line.prefill]
        predicted = cost.compute(chunks, line.num_decodes, line.context_tokens)
        stage, shape = _language(line)
        yield stage, (compute, predicted, shape)


def frames(call: Sequence[tuple[int, int, tuple[int, int, int]]]) -> tuple[int, int]:
    """Sum and sum of squares of the encoder tokens of every frame, as `sim.simulated.frames` has them of a plan."""
    sizes = [(count, height * width) for _, _, (count, height, width) in call]
    return sum(count * frame for count, frame in sizes), sum(count * frame * frame for count, frame in sizes)


def _language(line: PlanLine) -> tuple[str, tuple[float, ...]]:
    """Its stage, and its shape: means over chunks weighted by their tokens, over decodes plainly."""
    tokens = sum(chunk for _, chunk, _ in line.prefill)
    if not line.prefill:
        return "decode", (line.num_decodes, line.context_tokens / line.num_decodes)
    if line.num_decodes:
        return "mixed", (tokens, line.num_decodes)
    return "prefill", (tokens, sum(chunk * cached for _, chunk, cached in line.prefill) / max(tokens, 1))
