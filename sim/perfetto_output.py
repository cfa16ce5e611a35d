"""Writes a run's timeline, packed, and reads which part of it is asked for."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from sim.files import whole, writing
from sim.output import TIMELINE
from sim.perfetto import Timeline, TracedRun, Window
from sim.perfetto_events import Event
from workloads.errors import InputError

LEVEL = 5  # of compression: a third of the time of 9, for files a twentieth larger


def asked_for(trace: bool, text: str | None) -> Window | None:
    """By `--trace`, all of it; by `--trace-window` a part; None by neither. Raises InputError."""
    return window(text) if text is not None else Window() if trace else None


def window(text: str) -> Window:
    """`10:20`, `:20` or `10:`, in seconds. Raises InputError."""
    start, colon, end = text.partition(":")
    try:
        found = Window(float(start or 0), float(end or math.inf))
    except ValueError:
        found = Window(math.nan, math.nan)
    if not colon or not 0 <= found.start < found.end:
        raise InputError(f"--trace-window {text}: reads like START:END in seconds, as 10:20, :20 or 10:")
    return found


def write_timeline(run: TracedRun, folder: Path, window: Window) -> list[str]:
    """Into `folder`; what it leaves out, one line each. The same run gives the same bytes."""
    timeline = Timeline(run, window)
    about = {"name": run.scenario.name, "policy": run.scenario.policy.kind, "left_out": timeline.left_out}
    with writing(folder), whole(folder / TIMELINE) as partial, partial.open("wb") as file, _packing(file) as packed:
        packed.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":['.encode())
        packed.writelines(_lines(timeline.events()))
        packed.write(b"\n]}\n")
    return timeline.left_out


def _packing(file: BinaryIO) -> gzip.GzipFile:
    """Without name or date inside."""
    return gzip.GzipFile("", "wb", LEVEL, file, mtime=0)


def _lines(events: Iterable[Event]) -> Iterable[bytes]:
    """An event a line, with commas in between."""
    comma = ""
    for event in events:
        yield f"{comma}\n{json.dumps(event, separators=(',', ':'), allow_nan=False)}".encode()
        comma = ","
