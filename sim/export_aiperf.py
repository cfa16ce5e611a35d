"""Writes a run as aiperf would have measured it: `profile_export.jsonl` and `profile_export_aiperf.csv`, by its tags.

aiperf's `inter_token_latency` is a request's mean gap, which is TPOT here; `inter_chunk_latency` are the single gaps.
Moments are nanoseconds from the run's start, where aiperf has them since 1970.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.client_view import ClientView
from sim.files import write_text, writing

Floats = NDArray[np.float64]

RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.csv"
WORKER = "tandem"
UNITS = {
    "time_to_first_token": "ms",
    "time_to_second_token": "ms",
    "inter_chunk_latency": "ms",
    "inter_token_latency": "ms",
    "request_latency": "ms",
    "output_token_throughput_per_user": "tokens/sec/user",
    "input_sequence_length": "tokens",
    "output_sequence_length": "tokens",
    "output_token_count": "tokens",
    "num_images": "images",
}
NAMES = {  # as they stand in the CSV
    "inter_chunk_latency": "Inter Chunk Latency",
    "inter_token_latency": "Inter Token Latency",
    "input_sequence_length": "Input Sequence Length",
    "num_images": "Number of Images",
    "output_sequence_length": "Output Sequence Length",
    "output_token_count": "Output Token Count",
    "output_token_throughput_per_user": "Output Token Throughput Per User",
    "request_latency": "Request Latency",
    "time_to_first_token": "Time to First Token",
    "time_to_second_token": "Time to Second Token",
}
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
COLUMNS = ("Metric", "avg", "min", "max", "sum", *(f"p{q}" for q in PERCENTILES), "std")
Metrics = dict[str, Any]  # by tags


def export_aiperf(run: ClientView, folder: Path) -> list[Path]:
    """Both files; returns where. Requests that did not finish have no metrics, but an error with their status."""
    rows = run.requests.to_dict("records")
    metrics = [_metrics(row, gaps) for row, gaps in zip(rows, _gaps(run, len(rows)), strict=True)]
    records = [_record(row, found) for row, found in zip(rows, metrics, strict=True)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / RECORDS, "".join(f"{json.dumps(record)}\n" for record in records))
        write_text(folder / SUMMARY, _summary(run.requests, [found for found in metrics if found]))
    return [folder / RECORDS, folder / SUMMARY]


def _gaps(run: ClientView, number: int) -> list[Floats | None]:
    """Milliseconds, of each request; None where they are not known."""
    if run.gaps is None:
        return [None] * number
    owners, gaps = run.gaps
    ends = np.searchsorted(owners, run.requests["request_id"].to_numpy(), side="right")
    return [part / 1e6 for part in np.split(gaps, ends)[:number]]


def _metrics(row: Mapping[Any, Any], gaps: Floats | None) -> Metrics:
    if row["status"] != "finished":
        return {}
    found: Metrics = {
        "input_sequence_length": int(row["prompt_tokens"]),
        "output_sequence_length": int(row["output_tokens"]),
        "output_token_count": int(row["output_tokens"]),
        "time_to_first_token": row["ttft"] * 1e3,
        "request_latency": row["e2el"] * 1e3,
    }
    if row["num_items"]:
        found["num_images"] = int(row["num_items"])
    if row["tpot"] > 0:
        found |= {"inter_token_latency": row["tpot"] * 1e3, "output_token_throughput_per_user": 1 / row["tpot"]}
    if gaps is not None and len(gaps):
        found |= {"time_to_second_token": float(gaps[0]), "inter_chunk_latency": gaps.tolist()}
    return found


def _record(row: Mapping[Any, Any], metrics: Metrics) -> dict[str, Any]:
    start = round(row["arrival"] * 1e9)
    end = start if np.isnan(row["finish"]) else round(row["finish"] * 1e9)
    name = f"{WORKER}-{row['request_id']}"
    metadata = {
        "session_num": int(row["request_id"]),
        **dict.fromkeys(("x_request_id", "x_correlation_id", "conversation_id"), name),
        "turn_index": 0,
        "credit_issued_ns": start,
        "request_start_ns": start,
        "request_end_ns": end,
        "worker_id": WORKER,
        "record_processor_id": WORKER,
        "benchmark_phase": "profiling",
        "was_cancelled": row["status"] == "cancelled",
    }
    record = {"metadata": metadata, "metrics": {tag: {"value": v, "unit": UNITS[tag]} for tag, v in metrics.items()}}
    return record if metrics else record | {"error": {"type": row["status"], "message": row["reason"] or row["status"]}}


def _summary(requests: pd.DataFrame, metrics: Sequence[Metrics]) -> str:
    """aiperf's CSV: metrics with their statistics, then single figures."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_statistics(metrics))
    writer.writerows([[], ["Metric", "Value"], *_figures(requests)])
    return text.getvalue()


def _statistics(metrics: Sequence[Metrics]) -> Iterator[list[str]]:
    for tag, name in NAMES.items():
        known = [found[tag] for found in metrics if tag in found]
        if known:
            values = np.concatenate([np.atleast_1d(value) for value in known]).astype(float)
            figures = [values.mean(), values.min(), values.max(), values.sum()]
            figures += [*np.percentile(values, PERCENTILES), values.std()]
            yield [f"{name} ({UNITS[tag]})", *(f"{figure:.2f}" for figure in figures)]


def _figures(requests: pd.DataFrame) -> list[list[str]]:
    done = requests[requests["status"] == "finished"]
    duration = float(requests["finish"].max() - requests["arrival"].min())
    tokens = {name: float(done[name].sum()) for name in ("prompt_tokens", "output_tokens")}
    figures = {"Benchmark Duration (sec)": duration, "Error Request Count": float(len(requests) - len(done))}
    figures |= {"Request Count": float(len(done)), "Total Output Tokens (tokens)": tokens["output_tokens"]}
    if duration > 0:
        figures["Request Throughput (requests/sec)"] = len(done) / duration
        figures["Output Token Throughput (tokens/sec)"] = tokens["output_tokens"] / duration
        figures["Total Token Throughput (tokens/sec)"] = sum(tokens.values()) / duration
    return [[name, f"{figure:.2f}"] for name, figure in sorted(figures.items())]
