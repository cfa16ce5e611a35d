"""What goes wrong, as a user gets it: one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

INTERRUPTED = 130


@contextmanager
def needing(extra: str, *packages: str) -> Iterator[None]:
    """What is done here needs packages that simulating does not."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        from workloads.errors import InputError

        raise InputError(f"{error.name} is not installed: pip install -e '.[{extra}]' in the clone") from None


@contextmanager
def failures() -> Iterator[None]:
    """Wrong input is one line and exit code 2; an interrupt, Ctrl-C or SIGTERM, is 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise _interrupted() from None
    except Exception as error:
        if _by_interrupt(error):
            raise _interrupted() from None
        from sim.printing import one_line
        from workloads.errors import InputError

        if not isinstance(error, InputError):
            raise
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        raise typer.Exit(2) from None


def _interrupted() -> typer.Exit:
    print("interrupted", file=sys.stderr)
    return typer.Exit(INTERRUPTED)


def _by_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is behind it: imports and pydantic's schemas turn one into errors of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        if type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return error is not None
