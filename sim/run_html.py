"""What a notebook shows of runs: the table that `tandem run` prints, and small plots below it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from sim.plot_glance import glance
from sim.result import Run
from sim.run_plots import ComparedPlots
from sim.table_rows import Cells, rows
from workloads.errors import InputError

Runs = Sequence[tuple[str, Run]]

CELL = "padding:2px 12px 2px 0;border:0"


class SideBySide:
    """Runs that a notebook shows in one table and in the same plots."""

    def __init__(self, runs: Runs) -> None:
        if not runs:
            raise InputError("side by side: there is no run to show")
        self.runs = runs
        self.plot = ComparedPlots(runs)

    def _repr_html_(self) -> str:
        return runs_html(self.runs)

    def __repr__(self) -> str:
        return f"<SideBySide: {', '.join(label for label, _ in self.runs)}>"


def runs_html(runs: Runs) -> str:
    """A headline, notes and verdicts, the table, and a picture that needs no file."""
    names = ", ".join(dict.fromkeys(run.name for _, run in runs))
    sources = dict.fromkeys(run.source for _, run in runs)
    notes = [f"{label}: {line}" for label, run in runs for line in _told(run)]
    lines = "".join(f'<div style="font-size:85%">{escape(line)}</div>' for line in [*sources, *notes])
    return f"<div><b>{escape(names)}</b>{lines}{_table(rows(runs))}{_picture(runs)}</div>"


def _told(run: Run) -> list[str]:
    """What a reader has to know besides the figures."""
    blockers = [f"request {request} {reason}" for request, reason in run.blockers.items()]
    return [*run.notes, *([run.load] if run.load else []), *blockers]


def _table(lines: list[Cells]) -> str:
    heading, *others = lines
    body = "".join(_row("td", title, cells) for title, cells in others)
    return f'<table style="border-collapse:collapse">{_row("th", *heading)}{body}</table>'


def _row(tag: str, title: str, cells: list[str]) -> str:
    first = f'<{tag} style="{CELL};text-align:left">{_text(title)}</{tag}>'
    rest = "".join(f'<{tag} style="{CELL};text-align:right">{_text(cell)}</{tag}>' for cell in cells)
    return f"<tr>{first}{rest}</tr>"


def _text(words: str) -> str:
    return escape(words.replace("\n", " "))


def _picture(runs: Runs) -> str:
    image = base64.b64encode(glance(runs)._repr_png_()).decode()
    return f'<img alt="TTFT, ITL and the parts of the TTFT" src="data:image/png;base64,{image}"/>'
