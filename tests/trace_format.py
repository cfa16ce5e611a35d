"""Checks a timeline against the Trace Event Format, and against what Perfetto needs beyond it to draw one."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Lane = tuple[int, int]

FIELDS = {  # of each phase: what must be there; nothing else may
    "M": {"ph", "pid", "tid", "ts", "name", "args"},
    "X": {"ph", "pid", "tid", "ts", "dur", "name", "args"},
    "C": {"ph", "pid", "ts", "name", "args"},
    "s": {"ph", "pid", "tid", "ts", "id", "cat", "name"},
    "f": {"ph", "pid", "tid", "ts", "id", "cat", "name", "bp"},
}
NAMES = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
NAMES["thread_sort_index"] = "sort_index"


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def check(content: dict[str, Any]) -> list[Event]:
    """Asserts all of it; the events, for whatever else there is to ask of them."""
    assert set(content) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = content["traceEvents"]
    for event in events:
        _check_fields(event)
    _check_names(events)
    _check_lanes(events)
    _check_counters(events)
    _check_flows(events)
    return events


def _check_fields(event: Event) -> None:
    assert set(event) == FIELDS[event["ph"]], event
    assert isinstance(event["ts"], int | float) and event["ts"] >= 0, event
    assert isinstance(event["pid"], int) and isinstance(event["name"], str) and event["name"], event
    if event["ph"] == "X":
        assert event["dur"] > 0 and isinstance(event["args"], dict), event
    if event["ph"] == "C":
        assert event["args"] and all(type(value) in (int, float) for value in event["args"].values()), event


def _check_names(events: list[Event]) -> None:
    """Whatever has events has a name, once."""
    names = [(event["name"], event["pid"], event["tid"]) for event in events if event["ph"] == "M"]
    assert len(names) == len(set(names))
    for event in events:
        if event["ph"] == "M":
            assert set(event["args"]) == {NAMES[event["name"]]}
        else:
            assert ("process_name", event["pid"], 0) in names
            assert event["ph"] == "C" or ("thread_name", event["pid"], event["tid"]) in names


def _check_lanes(events: list[Event]) -> None:
    """Slices of a lane lie one after the other: those that overlap cannot be drawn."""
    for slices in by_lane(events).values():
        for before, after in itertools.pairwise(slices):
            assert end(before) <= start(after), (before, after)


def _check_counters(events: list[Event]) -> None:
    """In the order of time, and never twice the same in a row."""
    tracks: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            tracks[event["pid"], event["name"]].append(event)
    for track in tracks.values():
        for before, after in itertools.pairwise(track):
            assert start(before) <= start(after) and before["args"] != after["args"], (before, after)


def _check_flows(events: list[Event]) -> None:
    """From one slice that is there to another, forwards in time, each id once."""
    lanes = by_lane(events)
    starts, finishes = ([event for event in events if event["ph"] == phase] for phase in ("s", "f"))
    assert [event["id"] for event in starts] == [event["id"] for event in finishes]
    assert len({event["id"] for event in starts}) == len(starts)
    for before, after in zip(starts, finishes, strict=True):
        assert start(before) <= start(after) and after["bp"] == "e"
        assert all(slice_at(lanes[event["pid"], event["tid"]], event) is not None for event in (before, after))


def by_lane(events: list[Event]) -> dict[Lane, list[Event]]:
    lanes: dict[Lane, list[Event]] = defaultdict(list)
    for event in sorted((event for event in events if event["ph"] == "X"), key=start):
        lanes[event["pid"], event["tid"]].append(event)
    return lanes


def start(event: Event) -> int:
    """Nanoseconds."""
    return round(event["ts"] * 1e3)


def end(event: Event) -> int:
    return start(event) + round(event["dur"] * 1e3)


def slice_at(slices: list[Event], event: Event) -> Event | None:
    return next((one for one in slices if start(one) <= start(event) < end(one)), None)
