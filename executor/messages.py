"""What a library's error says, in one line."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """And the next one, where the first only announces it; the error's kind where it says nothing."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])
