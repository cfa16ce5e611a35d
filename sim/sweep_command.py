"""One `tandem sweep`: simulate what is not there yet, keep every result as it comes, then say what is best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sim.files import usable, write_text, writing
from sim.printing import printing
from sim.progress import ProgressBar
from sim.sweep_file import Sweep
from sim.sweep_means import Swept, means
from sim.sweep_points import Point, Points
from sim.sweep_report import Report
from sim.sweep_results import RESULTS, Results
from sim.sweep_row import Row, invalid
from sim.sweep_search import Ascents, search_of
from sim.sweep_workers import Workers, workers
from sim.tables import new_console, say
from workloads.errors import InputError

BEST, TABLES = "best.yaml", "points"
INTERRUPTED = 130  # exit code


class SweepCommand:
    """Raises InputError for wrong input, before anything is simulated."""

    def __init__(
        self, file: Path, out: Path | None, *, jobs: int | None, dask: str | None, tables: bool, plots: bool
    ) -> None:
        if jobs is not None and dask is not None:
            raise InputError("--jobs: a Dask cluster has as many workers as it has")
        self.jobs, self.dask, self.plots = jobs, dask, plots
        self.console = new_console()
        self.sweep = Sweep.load(file)
        try:
            self.points = Points(self.sweep)
            self.search = search_of(self.points)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        self.out = usable(out) if out else Path("runs", f"{self.sweep.name}.sweep")
        self.tables = (self.out / TABLES).resolve() if tables else None
        self.results = Results(self.out / RESULTS, self.search.knobs)
        self.rows: list[tuple[Point, Row]] = []
        self._simulated = 0

    def __call__(self) -> int:
        """Do it all; returns the exit code."""
        start = time.monotonic()
        try:
            with workers(self.jobs, self.dask) as on, ProgressBar(self.sweep.name, None) as progress:
                self._go_through(on, progress)
        except KeyboardInterrupt:
            self._say_interrupted()
            return INTERRUPTED
        elapsed = time.monotonic() - start
        report = Report(self.points, self.search, self.rows)
        self._write_best(report)
        plots = self._write_plots(report)
        with printing():
            report.print(self.console)
            self._say_where(report, f"{elapsed:,.1f} s on {on.words}", plots)
        return 0

    def _go_through(self, on: Workers, progress: ProgressBar) -> None:
        """Round by round: what the search asks for, until it asks for no more."""
        rounds = self.search.rounds()
        asked = next(rounds, None)
        while asked is not None:
            self._finish(asked, on, progress)
            rows = [self.results[point] for point in asked]
            self.rows += zip(asked, rows, strict=True)
            try:
                asked = rounds.send(rows)
            except StopIteration:
                asked = None

    def _finish(self, asked: Sequence[Point], on: Workers, progress: ProgressBar) -> None:
        """Of points that are the same, the first is simulated; what is no scenario is known at once."""
        missing = list({point.id: point for point in reversed(asked) if not self._is_there(point)}.values())[::-1]
        done, total = len(self.rows) + len(asked) - len(missing), len(self.rows) + len(asked) + self.search.left
        for point in missing:
            if not point.scenario:
                self.results.add(point, invalid(point))
        valid = [point for point in missing if point.scenario]
        for count, (point, row) in enumerate(on(valid, self.tables), done + len(missing) - len(valid) + 1):
            self.results.add(point, row)
            self._simulated += 1
            progress(count, total)

    def _is_there(self, point: Point) -> bool:
        """With its tables, if they are wanted and there can be any."""
        if point not in self.results:
            return False
        has_tables = "request_throughput" in self.results[point]
        return self.tables is None or not has_tables or (self.tables / point.id / "run.json").exists()

    def _write_best(self, report: Report) -> None:
        path, text = self.out / BEST, report.best_text()
        with writing(self.out):
            if text is None:
                path.unlink(missing_ok=True)
                return
            write_text(path, text)

    def _write_plots(self, report: Report) -> list[Path]:
        if not self.plots:
            return []
        from sim.plot_sweep import write_sweep_plots  # with matplotlib, which takes half a second

        table = self.results.table([point for point, _ in self.rows])
        swept = Swept(
            name=self.sweep.name,
            slo=self.points.scenario.slo,
            knobs=self.search.knobs,
            means=means(table, list(self.search.knobs), apart=isinstance(self.search, Ascents)),
            figure=report.figure,
            scores=[(one.setting, one.figure.mean) for one in report.ranked],
        )
        with writing(self.out):
            return write_sweep_plots(swept, self.out / "plots")

    def _say_interrupted(self) -> None:
        with printing():
            say(self.console, f"{len(self.results):,} points are in {self.results.folder}; the same command goes on")

    def _say_where(self, report: Report, spent: str, plots: Sequence[Path]) -> None:
        points = {point.id for point, _ in self.rows}
        counts = {"were there": len(points) - self._simulated, "are the same as others": len(self.rows) - len(points)}
        asides = "".join(f"; {count:,} {words}" for words, count in counts.items() if count)
        number = f"{self._simulated:,} point{'s' * (self._simulated != 1)}"
        say(self.console, f"{number} in {spent}{asides}: {self.results.folder}")
        if plots:
            say(self.console, f"{len(plots)} plots: {self.out / 'plots'}")
        if report.ranked:
            say(self.console, f"the best setting: tandem run {self.out / BEST}, or tandem replay")
