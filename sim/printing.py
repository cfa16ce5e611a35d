"""Printing where something may be wrong with what is printed or with whoever reads it."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from workloads.errors import InputError

LONGEST = 200  # characters of a key, a path or a value in a message


@contextmanager
def printing() -> Iterator[None]:
    """On stdout: whoever stops reading (`| head -1`) misses the rest; a full disk is an error."""
    try:
        yield
        print(end="", flush=True)
    except BrokenPipeError:
        _print_no_more()
    except OSError as error:
        _print_no_more()
        raise InputError(f"stdout: cannot be written: {error.strerror or error}") from None


def _print_no_more() -> None:
    """Nor try again what is still buffered, as Python would when it exits."""
    with suppress(OSError):  # not a real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(text: str) -> str:
    """Whatever does not print is escaped, and words without end are cut."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return re.sub(rf"\S{{{LONGEST + 1},}}", lambda word: short(word[0]), escaped)


def short(text: str) -> str:
    """Without its middle if it is too long."""
    half = (LONGEST - 3) // 2
    return text if len(text) <= LONGEST else f"{text[:half]}...{text[-half:]}"
