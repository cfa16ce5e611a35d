"""Reads GuideLLM's JSON report: several benchmarks, each with its requests and their moments in seconds since 1970.

GuideLLM's `inter_token_latency_ms` is a request's mean gap, which is TPOT here; single gaps are not recorded.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, NonNegativeInt

from sim.client_view import ClientView, Seen, client_view
from sim.measured_files import checked, documents, nanoseconds
from sim.scenario_file import default_name
from workloads.errors import InputError

_HINT = "; wanted is a report of `guidellm run --output kind=json`"


class Timings(BaseModel):
    request_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None


class Info(BaseModel):
    timings: Timings
    error: str | None = None


class Inputs(BaseModel):
    image_count: NonNegativeInt | None = None


class Stats(BaseModel):
    """One request."""

    info: Info
    prompt_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    input_metrics: Inputs = Inputs()


class Requests(BaseModel):
    successful: list[Stats]
    errored: list[Stats] = []
    incomplete: list[Stats] = []


class Strategy(BaseModel):
    type_: str = ""
    rate: float | None = None
    streams: int | None = None


class Settings(BaseModel):
    strategy: Strategy = Strategy()


class Benchmark(BaseModel):
    config: Settings = Settings()
    requests: Requests


class Metadata(BaseModel):
    guidellm_version: str = ""


class Report(BaseModel):
    """The document, as far as it is needed."""

    metadata: Metadata = Metadata()
    benchmarks: list[Benchmark]


def read_guidellm(path: Path) -> list[ClientView]:
    """A run a benchmark. Raises InputError, one line."""
    (place, content), *more = documents(path)
    if more:
        raise InputError(f"{path}: is not JSON{_HINT}")
    report = checked(Report, place, content, _HINT)
    if not report.benchmarks:
        raise InputError(f"{path}: has no benchmark")
    tool = f"guidellm {report.metadata.guidellm_version}".strip()
    labels = [_label(one) if len(report.benchmarks) > 1 else "" for one in report.benchmarks]
    pairs = zip(report.benchmarks, labels, strict=True)
    return [client_view(tool, default_name(path), _seen(path, one.requests), label) for one, label in pairs]


def _label(benchmark: Benchmark) -> str:
    """As GuideLLM calls it: `constant@6.00`."""
    strategy = benchmark.config.strategy
    amount = strategy.rate if strategy.rate is not None else strategy.streams
    return strategy.type_ if amount is None else f"{strategy.type_}={amount:g}"


def _seen(path: Path, requests: Requests) -> list[Seen]:
    groups = {"finished": requests.successful, "failed": requests.errored, "unfinished": requests.incomplete}
    return [
        _request(path, stats, status)
        for status, group in groups.items()
        for stats in group
        if stats.info.timings.request_start is not None  # else it was never sent
    ]


def _request(path: Path, stats: Stats, status: str) -> Seen:
    timings = stats.info.timings
    start = nanoseconds(timings.request_start or 0)
    if status != "finished":
        return Seen(start, stats.prompt_tokens, None, None, None, status=status, reason=stats.info.error or "")
    if timings.first_token_iteration is None or timings.last_token_iteration is None:
        raise InputError(f"{path}: has no time of a first token: GuideLLM measures it where the backend streams")
    ttft, e2el = (nanoseconds(time) - start for time in (timings.first_token_iteration, timings.last_token_iteration))
    images = stats.input_metrics.image_count or 0
    return Seen(start, stats.prompt_tokens, stats.output_tokens, ttft, e2el, num_items=images)
