"""What `tandem run` prints when all is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from sim.memory_table import TITLE as MEMORY_TITLE
from sim.memory_table import memory_table
from sim.output import TIMELINE
from sim.plotted import one_of
from sim.published_table import published_tables
from sim.reasons import turned_away, waiting
from sim.result import Run
from sim.tables import print_table, say
from sim.variants import Variant
from sim.verdicts import verdicts

Done = Sequence[tuple[Variant, Run]]


def labelled(done: Done) -> list[tuple[str, Run]]:
    """As tables and plots name them."""
    return [(variant.label or run.name, run) for variant, run in done]


@dataclass(frozen=True)
class RunReport:
    """Of variants that have run, the last one perhaps in part."""

    console: Console
    done: Done
    folders: Sequence[Path]  # of them, and of those that have not run
    timelines: Sequence[tuple[Path, list[str]]]  # in which folders, and what they leave out
    plots: Sequence[Path]
    num_left: int  # variants that have not run

    @property
    def labelled(self) -> list[tuple[str, Run]]:
        return labelled(self.done)

    def show(self) -> None:
        """Notes, the table, what it says of variants, published figures, and where everything lies."""
        self._say_once([(label, note) for label, run in self.labelled for note in run.notes])
        self._say_once([(label, run.load) for label, run in self.labelled if run.load])
        print_table(self.console, self.labelled)
        for line in verdicts(self.labelled):
            say(self.console, line)
        self._say_once([(label, one_of(run)[2:] + line) for label, run in self.labelled for line in turned_away(run)])
        self._print_memory()
        for title, table, below in published_tables(self.done):
            say(self.console, title)
            self.console.print(table)
            for line in below:
                say(self.console, line)
        self._say_once([(label, line) for label, run in self.labelled for line in waiting(run)])
        self._say_where()

    def _print_memory(self) -> None:
        """Of each variant that asks for it."""
        tables = [(label, table) for label, run in self.labelled if (table := memory_table(run)) is not None]
        if tables:
            say(self.console, MEMORY_TITLE)
        for label, table in tables:
            table.columns[0].header = label
            self.console.print(table)

    def _say_once(self, lines: Sequence[tuple[str, str]]) -> None:
        """What several variants say alike is said once, with their labels."""
        labels: dict[str, list[str]] = {}
        for label, line in lines:
            labels.setdefault(line, []).append(label)
        for line, those in labels.items():
            prefix = "" if len(those) == len(self.done) else f"{', '.join(those)}: "
            say(self.console, prefix + line)

    def _say_where(self) -> None:
        if any(run.partial for _, run in self.done):
            rest = f"; {self.num_left} more not started" if self.num_left else ""
            say(self.console, f"interrupted: what had finished is marked partial{rest}")
        for (label, _), folder in zip(self.labelled, self.folders, strict=False):
            say(self.console, f"{label}: {folder}")
        for folder, left_out in self.timelines:
            aside = f" ({'; '.join(left_out)}; --trace-window START:END shows others)" if left_out else ""
            say(self.console, f"timeline for ui.perfetto.dev: {folder / TIMELINE}{aside}")
        if self.plots:
            say(self.console, f"{len(self.plots)} plots: {self.plots[0].parent}")
