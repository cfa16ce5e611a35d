"""Reads aiperf's `profile_export.jsonl`: one record a request, metrics by their tags.

aiperf's `inter_token_latency` is a request's mean gap, which is TPOT here; `inter_chunk_latency` are the single gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeFloat

from sim.client_view import ClientView, Seen, client_view
from sim.measured_files import checked, documents
from sim.scenario_file import default_name
from workloads.errors import InputError

MEASURED_PHASE = "profiling"  # the other one is its warm-up


class Metric(BaseModel):
    value: NonNegativeFloat | list[NonNegativeFloat] = 0.0


class Metadata(BaseModel):
    request_start_ns: int
    request_end_ns: int | None = None
    benchmark_phase: str = MEASURED_PHASE
    was_cancelled: bool = False


class Failure(BaseModel):
    message: str = ""
    type: str | None = None


class Record(BaseModel):
    """A line of the file, as far as it is needed."""

    metadata: Metadata
    metrics: dict[str, Metric]
    error: Failure | None = None


def read_aiperf(path: Path) -> list[ClientView]:
    """One run. Raises InputError, one line, where the file is none of aiperf's, or was not streamed."""
    records = [(place, checked(Record, place, value, _HINT)) for place, value in documents(path)]
    seen = [_seen(place, one) for place, one in records if one.metadata.benchmark_phase == MEASURED_PHASE]
    if not seen:
        raise InputError(f"{path}: has no request of the phase {MEASURED_PHASE}")
    return [client_view("aiperf", default_name(path), seen)]


_HINT = "; wanted is profile_export.jsonl, which aiperf writes with --export-level records"


def _seen(place: str, record: Record) -> Seen:
    start = record.metadata.request_start_ns
    if record.error is not None or record.metadata.was_cancelled:
        status = "cancelled" if record.metadata.was_cancelled else "failed"
        reason = (record.error.type or record.error.message) if record.error else ""
        return Seen(start, _count(record, "input_sequence_length"), None, None, None, status=status, reason=reason)
    ttft, e2el = (_time(place, record, tag) for tag in ("time_to_first_token", "request_latency"))
    gaps = record.metrics.get("inter_chunk_latency")
    return Seen(
        start,
        _count(record, "input_sequence_length"),
        _count(record, "output_sequence_length"),
        ttft,
        e2el,
        None if gaps is None else [_nanoseconds(gap) for gap in _listed(gaps.value)],
        num_items=_count(record, "num_images") or 0,
    )


def _time(place: str, record: Record, tag: str) -> int:
    metric = record.metrics.get(tag)
    if metric is None or isinstance(metric.value, list):
        hint = ": aiperf measures it with --streaming" if tag == "time_to_first_token" else ""
        raise InputError(f"{place}: metrics.{tag} is missing{hint}")
    return _nanoseconds(metric.value)


def _count(record: Record, tag: str) -> int | None:
    metric = record.metrics.get(tag)
    return None if metric is None or isinstance(metric.value, list) else round(metric.value)


def _listed(value: Any) -> list[float]:
    return value if isinstance(value, list) else [value]


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
