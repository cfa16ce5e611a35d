"""A progress bar on stderr for runs that take longer than a second."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

PATIENCE = 1.0  # seconds without a bar
REFRESH = 0.1


class ProgressBar:
    """Called with the number of requests, or of points, done; draws now and then, and only where somebody looks."""

    def __init__(self, label: str, total: int | None) -> None:
        """`total` of them, where that is known beforehand."""
        label_column = TextColumn("{task.description}", markup=False)
        columns = (label_column, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(file=sys.stderr)
        self._shown = console.is_terminal
        self._bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self._label, self._total = label, total
        self._task: TaskID | None = None
        self._next = time.monotonic() + PATIENCE

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None = None) -> None:
        """`total`, where it turns out to be another one."""
        self._total = self._total if total is None else total
        now = time.monotonic()
        if now < self._next or not self._shown:
            return
        self._next = now + REFRESH
        if self._task is None:
            self._task = self._bar.add_task(self._label, total=self._total, completed=done)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=self._total, refresh=True)
