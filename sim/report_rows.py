"""The iterations of a run as a report carries them: those that differ by nothing but time are one row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.members import Members
from sim.report_pack import Packed, micros, packed

Ints = NDArray[np.int64]

TOLERANCES = (1.3, 2.0, np.inf)  # by how much durations within a row may differ, until there are few enough rows
MOST_ROWS = 150_000
LAST = ("kv_blocks_used", "encoder_rows_held", "encoder_rows_resident", "num_running", "num_waiting")
OWN = ("num_items", "encoder_tokens", "num_prefill_tokens", "num_decodes")


def by_engine(iterations: pd.DataFrame, engines: Sequence[str]) -> pd.DataFrame:
    """All of the first engine, then all of the second: as the steps of decodes are numbered."""
    number = iterations["engine"].astype(str).map({name: index for index, name in enumerate(engines)})
    ordered = iterations.assign(number=number.astype(np.int64)).sort_values(["number", "start"], kind="stable")
    return ordered.reset_index(drop=True)


def heads(ordered: pd.DataFrame) -> Ints:
    """Where each row begins: at most MOST_ROWS of them, unless more iterations than that do more than decode."""
    found = np.zeros(0, np.int64)
    for tolerance in TOLERANCES:
        found = _heads(ordered, tolerance)
        if len(found) <= MOST_ROWS:
            break
    return found


def _heads(ordered: pd.DataFrame, tolerance: float) -> Ints:
    """A row goes on as long as the same decodes do, by themselves and without a pause."""
    start, end = ordered["start"].to_numpy(), ordered["end"].to_numpy()
    alone = (ordered[["num_items", "num_prefill_tokens", "encode"]] == 0).all(axis=1).to_numpy()
    same = np.ones(max(len(ordered) - 1, 0), bool)
    for name in ("num_decodes", "num_running", "num_waiting", "encoder_rows_held", "encoder_rows_resident", "number"):
        same &= np.diff(ordered[name].to_numpy()) == 0
    taken = np.maximum(end - start, 1e-9)
    ratio = taken[1:] / taken[:-1]
    same &= alone[1:] & alone[:-1] & (start[1:] - end[:-1] < 1e-6) & (ratio < tolerance) & (ratio > 1 / tolerance)
    return np.flatnonzero(np.append(True, ~same)) if len(ordered) else np.zeros(0, np.int64)


def packed_rows(ordered: pd.DataFrame, first: Ints) -> dict[str, Packed]:
    """Columns of rows; times in microseconds, `taken` and `encode` of all iterations in a row together."""
    if not len(first):
        return {}
    start, end = micros(ordered["start"].to_numpy()), micros(ordered["end"].to_numpy())
    last = np.append(first[1:], len(ordered)) - 1
    columns = {
        "start": packed(start[first], delta=True),
        "taken": packed(end[last] - start[first]),
        "count": packed(last - first + 1),
        "longest": packed(np.maximum.reduceat(end - start, first)),
        "engine": packed(ordered["number"].to_numpy()[first]),
    }
    for name in ("encode", "host"):
        columns[name] = packed(np.add.reduceat(micros(ordered[name].to_numpy()), first))
    columns |= {name: packed(ordered[name].to_numpy(np.int64)[first]) for name in OWN}
    return columns | {name: packed(ordered[name].to_numpy(np.int64)[last]) for name in LAST}


def numbered_members(ordered: pd.DataFrame, members: Sequence[Members]) -> Members:
    """Those of all engines together, by the place of their iteration in `ordered`."""
    sizes = np.bincount(ordered["number"].to_numpy(np.int64), minlength=len(members)).tolist()
    befores = np.cumsum([0, *sizes]).tolist()
    pairs = zip(befores, members, strict=False)
    return {before + iteration: both for before, of_engine in pairs for iteration, both in of_engine.items()}


def packed_members(members: Members, first: Ints) -> dict[str, dict[str, Packed]]:
    """Whose items were encoded and whose prompts prefilled, each as columns of row, request and tokens."""
    return {name: _members(members, which, first) for which, name in enumerate(("encoding", "prefilling"))}


def _members(members: Members, which: int, first: Ints) -> dict[str, Packed]:
    told = [(place, *pair) for place in sorted(members) for pair in members[place][which].items()]
    places, requests, tokens = np.array(told, np.int64).reshape(-1, 3).T
    rows = np.searchsorted(first, places, side="right") - 1
    return {"row": packed(rows, delta=True), "request": packed(requests), "tokens": packed(tokens)}
