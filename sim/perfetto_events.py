"""Events of the Trace Event Format: names, slices, counters and flows, out of arrays of nanoseconds.

The format: Google, "Trace Event Format" (2016). Its moments are microseconds; here they keep their nanoseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Event = dict[str, Any]


def named(process: int, name: str, lanes: Mapping[int, str]) -> Iterator[Event]:
    """What a process and its lanes are called, in the order of their numbers."""
    yield _meta("process_name", process, 0, {"name": name})
    yield _meta("process_sort_index", process, 0, {"sort_index": process})
    for lane, words in lanes.items():
        yield _meta("thread_name", process, lane, {"name": words})
        yield _meta("thread_sort_index", process, lane, {"sort_index": lane})


def _meta(kind: str, process: int, lane: int, args: Mapping[str, Any]) -> Event:
    return {"ph": "M", "pid": process, "tid": lane, "ts": 0, "name": kind, "args": args}


def slices(
    process: int, lane: int, starts: Ints, durations: Ints, names: Iterable[str], args: Iterable[Mapping[str, Any]]
) -> Iterator[Event]:
    """What went on in a lane, one after the other or one inside the other; nothing that took no time."""
    for start, duration, name, more in zip(starts.tolist(), durations.tolist(), names, args, strict=True):
        if duration > 0:
            where = {"ph": "X", "pid": process, "tid": lane}
            yield {**where, "ts": start / 1e3, "dur": duration / 1e3, "name": name, "args": more}


def counter(process: int, name: str, times: Ints, values: Ints) -> Iterator[Event]:
    """A number over time, where it changes."""
    changes = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    for time, value in zip(times[changes].tolist(), values[changes].tolist(), strict=True):
        yield {"ph": "C", "pid": process, "ts": time / 1e3, "name": name, "args": {"value": value}}


def between(starts: Ints, ends: Ints, values: Ints, idle: int | None) -> tuple[Ints, Ints]:
    """(times, values) of a number that holds while iterations run; where none does it is `idle`, or as it was."""
    if idle is None or not len(starts):
        return starts, values
    stops = np.flatnonzero(np.append(starts[1:] > ends[:-1], True))
    times = np.concatenate([starts, ends[stops]])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([values, np.full(len(stops), idle)])[order]


def flow(id: int, name: str, start: tuple[int, int, int], end: tuple[int, int, int]) -> list[Event]:
    """An arrow from one slice to another, each given as (process, lane, a moment inside it)."""
    both = {"id": id, "cat": "request", "name": name}
    begin = {"ph": "s", "pid": start[0], "tid": start[1], "ts": start[2] / 1e3, **both}
    return [begin, {"ph": "f", "bp": "e", "pid": end[0], "tid": end[1], "ts": end[2] / 1e3, **both}]


def lanes(starts: Sequence[int], ends: Sequence[int], most: int) -> list[int]:
    """The first lane that is free for each interval, in the order of their starts; 0 where all `most` are taken."""
    taken: list[tuple[int, int]] = []  # (until when, lane)
    free, used, result = [*range(1, most + 1)], taken, []
    for start, end in zip(starts, ends, strict=True):
        while used and used[0][0] <= start:
            heapq.heappush(free, heapq.heappop(used)[1])
        if not free:
            result.append(0)
            continue
        lane = heapq.heappop(free)
        heapq.heappush(used, (end, lane))
        result.append(lane)
    return result


def nanoseconds(seconds: pd.Series[Any]) -> Ints:
    return np.rint(seconds.to_numpy(float) * 1e9).astype(np.int64)
