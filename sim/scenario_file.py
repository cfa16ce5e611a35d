"""From a YAML file, with dotted paths set to other values, to a scenario, or to one line that says what is wrong."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sim.complaints import complaint
from sim.unsupported import refusal
from sim.yaml_text import DEEPEST, check_ends, read, shown
from workloads.errors import InputError

M = TypeVar("M", bound=BaseModel)


def load(kind: type[M], file: Path, changes: Mapping[str, Any]) -> M:
    """The object that the file describes; its name is the file's unless it says otherwise."""
    _check_changes(changes)
    content = {"name": default_name(file), **read(file)}
    try:
        return decode(kind, content, changes, file.parent)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def decode(kind: type[M], content: Mapping[Any, Any], changes: Mapping[str, Any], base: Path, set: str = "--set ") -> M:
    """The object that a file's content, which is left as it is, describes once dotted paths are set to other values.

    Files it names are looked for from `base`. Raises InputError with the path in the file, or of the value that was
    set, behind the word that `set` is.
    """
    changed = copy.deepcopy(dict(content))
    for path, value in changes.items():
        try:
            check_ends(value)
            assign(changed, path, value)
        except ValueError as error:
            raise InputError(f"{set}{path}: {error}") from None
    _refuse(changed)
    try:
        return kind.model_validate(changed, context={"base": base})
    except ValidationError as error:
        place, message = complaint(kind, error, changed)
        raise InputError(f"{_blamed(place, changes, set)}{message}") from None


def _check_changes(changes: Any) -> None:
    """Python's callers may give anything."""
    if not isinstance(changes, Mapping):
        raise InputError(f"set is a mapping of dotted paths to values, not {shown(changes)}")
    for path in changes:
        if not isinstance(path, str):
            raise InputError(f"set: a path is text like 'workload.arrivals.rate', not {shown(path)}")


def default_name(file: Path) -> str:
    """The file's, without whatever a name cannot have."""
    return re.sub(r"[^\w.+-]+", "_", file.stem).lstrip(".+-")[:80] or "scenario"


def assign(content: dict[Any, Any], path: str, value: Any) -> None:
    """Set a dotted path; sections on the way must be mappings or lists, or absent or null, and are made then."""
    *way, last = path.split(".")
    if len(way) >= DEEPEST:
        raise InputError("not a path: it has too many parts")
    node: Any = content
    for depth, part in enumerate(way):
        key = _key(node, part)
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]
        if not isinstance(node, dict | list):
            raise InputError(f"{'.'.join(way[: depth + 1])} is {shown(node)}, which has nothing inside")
    node[_key(node, last)] = copy.deepcopy(value)


def _key(node: dict[Any, Any] | list[Any], part: str) -> Any:
    """What `part` of a path means in `node`: the place in a list, a key that is a number, or else a name."""
    if not part:
        raise InputError("not a path; it reads like workload.arrivals.rate")
    if isinstance(node, dict):
        return int(part) if part.isdecimal() and int(part) in node else part
    if not part.isdecimal() or int(part) >= len(node):
        raise InputError(f"{part!r} is none of the list's entries, which are called 0 to {len(node) - 1}")
    return int(part)


def _blamed(place: str, changes: Mapping[str, Any], set: str) -> str:
    """The place, and whether it was `--set` that wrote there."""
    is_set = any(f"{path}.".startswith(f"{place}.") or place.startswith(f"{path}.") for path in changes)
    return f"{set}{place}: " if place and is_set else f"{place}: " if place else ""


def _refuse(content: Any, place: str = "") -> None:
    """What engines have and we do not yet is refused by name, wherever it stands."""
    if isinstance(content, list):
        for index, item in enumerate(content):
            _refuse(item, f"{place}{index}.")
    elif isinstance(content, dict):
        for key, value in content.items():
            if reason := refusal(str(key)):
                raise InputError(f"{place}{key}: {reason}")
            _refuse(value, f"{place}{key}.")
