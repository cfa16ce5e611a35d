"""Which stage of a real server a load waits for: what each takes of one request, and where a request's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.cost_model import CostModel
from sim.serving_table import Prediction
from sim.sheet import Sheet
from workloads.request import MultimodalItem

ENGINE = ("queue_wait", "encode", "prefill", "reservation_wait", "encoder_budget_wait", "other")  # parts of the TTFT
CLOSE = 0.1  # relative: closer stages than that take turns in being the slowest


class Stages(NamedTuple):
    """Milliseconds that one request takes of each: of the front end, and, run alone, of the engine's loop."""

    front_end: float
    exposed: float
    encode: float
    prefill: float

    @property
    def engine(self) -> float:
        return self.exposed + self.encode + self.prefill

    @property
    def slowest(self) -> str:
        if abs(self.front_end - self.engine) < CLOSE * max(self.front_end, self.engine):
            return "both alike"
        return "front end" if self.front_end > self.engine else "engine"


def stages(prediction: Prediction) -> Stages:
    """By the scenario's front end and its profile; of a request with the mean length of text."""
    scenario, profile, _ = prediction.resolved
    items = next(iter(scenario.workload.requests(seed=0, model=scenario.model))).items
    front_end, cost = scenario.front_end, CostModel.from_profile(profile)
    tokens = round(prediction.row.text_tokens) + sum(item.embeds for item in items)
    prepared = front_end.ms_per_request + front_end.of_items(items) / 1e6
    return Stages(
        prepared / front_end.workers,
        front_end.exposed.of_items(items) / 1e6,
        cost.encode(*_frames(items)) / 1e6,
        cost.compute([(tokens, 0)], 0, 0) / 1e6,
    )


def _frames(items: Sequence[MultimodalItem]) -> tuple[int, int]:
    sizes = [item.encoder_tokens for item in items]
    return sum(sizes), sum(size * size for size in sizes)


def explained(engine: str, predictions: Sequence[Prediction]) -> Sheet:
    """A line a row: what was measured for one request, what each stage takes, where its time goes."""
    per_request = ("measured, 1/throughput", "front end", "exposed", "encode", "prefill")
    of_e2e = ("in the front end", "engine, to first token", "handing over", "decode")
    rows = []
    for p in predictions:
        found = stages(p)
        numbers = [1e3 / p.row.measured["request_throughput"], *found, *_parts(p)]
        error = f"{p.error('request_throughput'):+.1f}"
        rows.append([p.row.load, "fitted" if p.fitted else "", found.slowest, error, *(f"{n:,.0f}" for n in numbers)])
    headings = ["load", "", "slowest", "error of requests/s (%)", *per_request, *of_e2e]
    title = f"{engine}: what a request takes of each stage alone (ms), and where its E2E goes in the simulation (ms)"
    return Sheet(title, headings, rows, words=3)


def _parts(p: Prediction) -> list[float]:
    """Of the mean E2E: preparation, engine to the first token, handing that over, the rest."""
    engine = sum(p.mean(f"mean_{part}_ms") for part in ENGINE)
    decode = p.mean("mean_e2el_ms") - p.mean("mean_ttft_ms")
    return [p.mean("mean_preparation_ms"), engine, p.mean("mean_delivery_ms"), decode]
