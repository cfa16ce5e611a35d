"""Reads measured figures of real servers: a CSV in the form of scenarios/published/h200_qwen3vl8b_serving.csv."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sim.complaints import nearest
from workloads.errors import InputError

SIZES = {"360p": "640x360", "480p": "854x480", "720p": "1280x720", "1080p": "1920x1080", "1440p": "2560x1440"}
COUNTS = ("images", "concurrency", "requests", "text_tokens_total", "output_tokens_total")
FIGURES = ("request_throughput", "mean_ttft_ms", "mean_itl_ms", "mean_e2el_ms")  # that are compared
SPREAD = ("min_tput", "max_tput")
LEAST, MOST = 1e-9, 1e12
COLUMNS = ("engine", "resolution", *COUNTS, *FIGURES, *SPREAD)


class ServingRow(NamedTuple):
    """One load on one server, and what was measured."""

    engine: str
    images: int  # of each request
    resolution: str  # as it is written
    size: str  # of each image, `1280x720`
    concurrency: int
    requests: int
    text_tokens: float  # mean of a request
    output_tokens: float
    measured: Mapping[str, float]  # FIGURES
    spread: float  # of the throughput: greatest less least of the runs, over their median
    place: str = ""  # in its file

    @property
    def load(self) -> str:
        return f"{self.images} x {self.resolution}, {self.concurrency} users"

    @property
    def megapixels(self) -> float:
        """Of one request."""
        width, height = map(int, self.size.split("x"))
        return self.images * width * height / 1e6


def read_rows(path: Path) -> list[ServingRow]:
    """Lines that begin with `#` say where it comes from. Raises InputError, one line with the place in the file."""
    try:
        table = pd.read_csv(path, comment="#", skip_blank_lines=True, dtype=str, keep_default_na=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no such table: {' '.join(str(error).split())}") from None
    if missing := [name for name in COLUMNS if name not in table]:
        raise InputError(f"{path}: no column {missing[0]!r}{nearest(missing[0], [*map(str, table)])}")
    if table.empty:
        raise InputError(f"{path}: has no rows")
    rows = table[list(COLUMNS)].itertuples(index=False)
    named = (dict(zip(COLUMNS, cells, strict=True)) for cells in rows)
    return [_row(f"{path}: row {number}", cells) for number, cells in enumerate(named, start=1)]


def _row(place: str, cells: Mapping[str, str]) -> ServingRow:
    counts = {name: _number(place, name, cells[name], whole=True) for name in COUNTS}
    figures = {name: _number(place, name, cells[name]) for name in FIGURES}
    least, greatest = (_number(place, name, cells[name]) for name in SPREAD)
    if not least <= figures["request_throughput"] <= greatest:
        raise InputError(f"{place}: request_throughput should lie between min_tput and max_tput")
    return ServingRow(
        engine=cells["engine"],
        images=int(counts["images"]),
        resolution=cells["resolution"],
        size=_size(place, cells["resolution"]),
        concurrency=int(counts["concurrency"]),
        requests=int(counts["requests"]),
        text_tokens=counts["text_tokens_total"] / counts["requests"],
        output_tokens=counts["output_tokens_total"] / counts["requests"],
        measured=figures,
        spread=(greatest - least) / figures["request_throughput"],
        place=place,
    )


def _number(place: str, name: str, text: str, *, whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST or (whole and value != int(value)):
        kind = "whole number from 1" if whole else f"number from {LEAST:g}"
        raise InputError(f"{place}: {name} should be a {kind} to {MOST:g}, not {text!r}")
    return value


def _size(place: str, resolution: str) -> str:
    if re.fullmatch(r"\d{1,5}x\d{1,5}", resolution):
        return resolution
    if resolution not in SIZES:
        raise InputError(f"{place}: resolution should be one of {', '.join(SIZES)}, or as 1280x720, not {resolution!r}")
    return SIZES[resolution]
