"""Reads the files of benchmarks: JSON, or JSON a line, each checked against what is needed of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sim.profiles import first_problem
from workloads.errors import InputError

M = TypeVar("M", bound=BaseModel)


def read_text(path: Path) -> str:
    """Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: cannot be read: not UTF-8 text") from None


def documents(path: Path) -> list[tuple[str, Any]]:
    """The file's one JSON value, or one a line, each with its place. Raises InputError."""
    text = read_text(path)
    try:
        return [(str(path), json.loads(text))]
    except (ValueError, RecursionError):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: is empty")
    return [(f"{path}:{number}", _parsed(f"{path}:{number}", line)) for number, line in lines]


def _parsed(place: str, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: is not JSON: {error}") from None


def checked(kind: type[M], place: str, value: Any, hint: str = "") -> M:
    """The value as `kind`, which names the parts that are needed. Raises InputError with the first that is wrong."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{place}: {first_problem(error)}{hint}") from None


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
