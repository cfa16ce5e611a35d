"""The table that `tandem run` prints: the figures of all variants side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from sim.table_rows import Cells, Runs, rows

WIDE = 1000  # columns


def print_table(console: Console, runs: Runs) -> None:
    """Variants as columns, as many beside each other as the terminal is wide."""
    lines = rows(runs)
    flat = [(_flat(title), [_flat(cell) for cell in cells]) for title, cells in lines]
    if _width(console, _table(flat, range(len(runs)))) <= console.width:
        lines = flat
    for part in _parts(console, lambda some: _table(lines, some), len(runs)):
        console.print(part)
    several = [run.ensemble for _, run in runs if run.ensemble is not None]
    for number, what in dict.fromkeys((len(ensemble.members), ensemble.what) for ensemble in several):
        say(console, f"means of {number} {what}")
    for source in sorted({run.source for _, run in runs}):
        say(console, source)


def new_console() -> Console:
    """On stdout, with everything as it is written; where nobody looks, lines are as long as they need to be."""
    console = _Console(markup=False, emoji=False)
    return console if console.is_terminal else _Console(width=WIDE, markup=False, emoji=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the caller, where rich would exit."""
        raise BrokenPipeError


def say(console: Console, text: str) -> None:
    """A line as it is, however long."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(lines: Sequence[Cells], some: range) -> Table:
    """The first of the lines is the heading."""
    table = new_table()
    heading, labels = lines[0]
    table.add_column(heading, no_wrap=True)
    for index in some:
        table.add_column(labels[index], justify="right", no_wrap=True)
    for title, cells in lines[1:]:
        table.add_row(title, *(cells[index] for index in some))
    return table


def new_table() -> Table:
    """With a line below its heading and no others, which leaves room for one more variant."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def _flat(text: str) -> str:
    return text.replace("\n", " ")


def _parts(console: Console, table: Callable[[range], Table], number: int) -> Iterator[Table]:
    """As many variants as fit, at least one; then the next."""
    start = 0
    while start < number:
        end = number
        while end > start + 1 and _width(console, table(range(start, end))) > console.width:
            end -= 1
        yield table(range(start, end))
        start = end


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum
