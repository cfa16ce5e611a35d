"""A table as it is printed in a terminal and as it stands in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console

from sim.tables import new_table, say


class Sheet(NamedTuple):
    """The first `words` columns read from the left; `notes` stand below."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: Sequence[str] = ()


def print_sheet(console: Console, sheet: Sheet) -> None:
    """With its title above."""
    say(console, sheet.title)
    table = new_table()
    for index, heading in enumerate(sheet.headings):
        table.add_column(heading, justify="left" if index < sheet.words else "right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*row)
    console.print(table)
    for note in sheet.notes:
        say(console, note)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """A table whose first columns, so many as are `words`, read from the left."""
    rule = [*("---" for _ in headings[:words]), *("---:" for _ in headings[words:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows))


def in_page(sheet: Sheet) -> str:
    """In Markdown, without its title."""
    parts = [markdown(sheet.headings, sheet.rows, words=sheet.words), *sheet.notes]
    return "\n\n".join(parts)
