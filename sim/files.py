"""Files that appear whole or not at all, what a killed process left of them, and which names they may have."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workloads.errors import InputError

LONGEST_NAME = 255  # bytes, on every common file system
PARTIAL = re.compile(r"\..+\.(?:csv|gz|json|parquet|png|yaml)\.(\d+)\.partial")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` if all goes well and else vanishes."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Whole or not at all; what is undefined is null, never NaN."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def remove_partials(folder: Path) -> None:
    """What processes that no longer run have left there half-written."""
    for path in folder.glob(".*.partial"):
        name = PARTIAL.fullmatch(path.name)
        if name and not _runs(int(name[1])):
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def remove_empty(folder: Path) -> None:
    with suppress(OSError):  # absent, or not empty
        folder.rmdir()


def usable(path: str | Path) -> Path:
    """The path, if files can have it and tables can hold it."""
    text = str(path)
    if "\0" in text:
        raise InputError(f"{text}: no path can hold a NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text}: the path is not UTF-8 text") from None
    if any(len(part.encode()) > LONGEST_NAME for part in Path(text).parts):
        raise InputError(f"{text[:40]}...: a name in the path is longer than {LONGEST_NAME} bytes")
    return Path(path)


def check_writable(path: Path) -> None:
    """Before long work on what is to go there. Raises InputError; makes the folder."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InputError(f"{path}: is a folder, where a file is to go")
        trial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        trial.touch()
        trial.unlink()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the file system refuses is the user's error, in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None
