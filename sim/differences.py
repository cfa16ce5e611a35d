"""The first difference between two runs: in a plan, in a row of a table, or in how far they went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.plan_line import PlanLine

MOST_FIELDS = 4  # named in one line
NOBODY = 2**62  # the iteration of what belongs to none


class Difference(NamedTuple):
    """Where two runs part, and how."""

    place: str
    what: str
    iteration: int = NOBODY

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def fields_that_differ(ours: Mapping[str, Any], theirs: Mapping[str, Any], us: str = "twin", them: str = "live") -> str:
    """`prefill: twin [[1, 5, 0]], live [[1, 6, 0]]`, of each field that differs."""
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    told = [f"{name}: {us} {_shown(ours.get(name))}, {them} {_shown(theirs.get(name))}" for name in names]
    return _listed(told)


def texts_that_differ(ours: Sequence[str], theirs: Sequence[str], us: str, them: str) -> Difference | None:
    """The first line of two plan logs that is not the same, fields in hand where both have one."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            what = fields_that_differ(_fields(one), _fields(other), us, them) or "written in another way"
            return Difference(f"iteration {number}", what, number)
    if len(ours) != len(theirs):
        number = min(len(ours), len(theirs))
        return Difference(f"iteration {number}", f"{us} has {len(ours)}, {them} {len(theirs)}", number)
    return None


def _fields(text: str) -> dict[str, Any]:
    return PlanLine.model_validate_json(text).model_dump(exclude_defaults=True)


def iterations_that_differ(ours: pd.DataFrame, theirs: pd.DataFrame, us: str, them: str) -> Difference | None:
    """The first row of two iterations tables."""
    row = _first_row(ours, theirs)
    if row is None:
        return None
    return Difference(f"iteration {row}", _rows(ours, theirs, row, us, them), row)


def requests_that_differ(ours: pd.DataFrame, theirs: pd.DataFrame, us: str, them: str) -> Difference | None:
    """The first row of two requests tables, in the order of ids."""
    row = _first_row(ours, theirs)
    if row is None:
        return None
    longer = ours if row < len(ours) else theirs
    return Difference(f"request {longer['request_id'].iloc[row]}", _rows(ours, theirs, row, us, them))


def _first_row(ours: pd.DataFrame, theirs: pd.DataFrame) -> int | None:
    """Equal to the last bit; what never came is equal to what never came."""
    size = min(len(ours), len(theirs))
    differs = np.zeros(size, bool)
    for name in ours:
        differs |= ~_equal(ours[name].to_numpy()[:size], theirs[name].to_numpy()[:size])
    if differs.any():
        return int(differs.argmax())
    return None if len(ours) == len(theirs) else size


def _equal(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    same = np.asarray(one == other, bool)
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
    return same


def _rows(ours: pd.DataFrame, theirs: pd.DataFrame, row: int, us: str, them: str) -> str:
    if row >= min(len(ours), len(theirs)):
        return f"{us} has {len(ours)} rows, {them} {len(theirs)}"
    return fields_that_differ(_cells(ours, row), _cells(theirs, row), us, them)


def _cells(table: pd.DataFrame, row: int) -> dict[str, Any]:
    """What never came as None, so that it equals itself."""
    cells = {str(name): table[name].iloc[row] for name in table}
    return {name: None if isinstance(cell, float) and np.isnan(cell) else cell for name, cell in cells.items()}


def _listed(told: Sequence[str]) -> str:
    more = f"; and {len(told) - MOST_FIELDS} more" if len(told) > MOST_FIELDS else ""
    return "; ".join(told[:MOST_FIELDS]) + more


def _shown(value: Any) -> str:
    """Short: a long list without its middle."""
    if value is None:
        return "none"
    text = str(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 80 else f"{text[:50]} ... {text[-25:]}"
