"""One `tandem run`: every variant checked, then run and written, then all of them shown side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sim.blur import no_spread
from sim.ensemble_output import member_folder, remove_ensemble, remove_single
from sim.files import usable, writing
from sim.live_output import remove_live_files
from sim.output import REPORT, remove_plots, write_run
from sim.perfetto import Window
from sim.perfetto_output import write_timeline
from sim.printing import printing
from sim.progress import ProgressBar
from sim.replications import Group, Several, complete
from sim.result import Run
from sim.run import simulate_resolved
from sim.run_report import RunReport, labelled
from sim.tables import new_console
from sim.variant_folders import write_variants
from sim.variants import Variant, expand, folder_names
from sim.world import Resolved
from workloads.errors import InputError

INCOMPLETE, INTERRUPTED = 3, 130  # exit codes


class RunCommand:
    """Raises InputError for wrong input: before anything is run, unless only a trace's later lines are wrong.

    Another way of running scenarios overrides how one is checked, executed and written.
    """

    suffix = ""  # of the folder that is written where none is named

    def __init__(
        self,
        files: Sequence[Path],
        sets: Sequence[str],
        out: Path | None,
        plots: bool,
        jobs: int | None = None,
        uncertainty: int | None = None,
        timeline: Window | None = None,
    ) -> None:
        self.plots = plots
        self.timeline = timeline  # what of each run goes into one, if anything
        self.jobs = jobs  # processes for several runs of a variant; by default one a core
        self.uncertainty = uncertainty  # draws of each variant, if any
        self.console = new_console()
        variants = expand([usable(file) for file in files], sets)
        self.checked = [(variant, self.check(variant)) for variant in variants]
        if timeline is not None:
            _check_timelines(self.checked)
        self.several = [self._several(variant, resolved) for variant, resolved in self.checked]
        self.base = usable(out) if out else Path("runs", self._name() + self.suffix)
        self.folders = [self.base / name for name in folder_names([variant.label for variant in variants])]
        if len(variants) == 1:
            self.folders = [self.base]
        self.done: list[tuple[Variant, Run]] = []
        self.timelines: list[tuple[Path, list[str]]] = []  # in which folders, and what they leave out

    def check(self, variant: Variant) -> Resolved:
        """The variant with every default filled in."""
        return variant.resolve()

    def execute(self, resolved: Resolved, label: str, folder: Path, progress: ProgressBar) -> Run:
        """Run one variant and write its folder, but for the plots."""
        run = simulate_resolved(resolved, progress=progress)
        remove_live_files(folder)
        remove_ensemble(folder)
        write_run(run, label, folder)
        return run

    def _name(self) -> str:
        """The scenario's, or those of all."""
        names = [resolved.scenario.name for _, resolved in self.checked]
        return "+".join(dict.fromkeys(names))[:80]

    def __call__(self) -> int:
        """Do it all; returns the exit code."""
        for folder in self.folders:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        for (variant, resolved), several, folder in zip(self.checked, self.several, self.folders, strict=True):
            if not self._interrupted:
                self._run(variant, resolved, several, folder)
        if not self._interrupted:
            self._replicate(time.perf_counter() - start)
        write_variants(self.base, self.folders[: len(self.done)])
        plots = self._write_plots()
        num_left = len(self.checked) - len(self.done)
        with printing():
            RunReport(self.console, self.done, self.folders, self.timelines, plots, num_left).show()
        if self._interrupted:
            return INTERRUPTED
        return 0 if all(run.verdict == "finished" for _, run in self.done) else INCOMPLETE

    @property
    def _interrupted(self) -> bool:
        return any(run.partial for _, run in self.done)

    @property
    def _labelled(self) -> list[tuple[str, Run]]:
        return labelled(self.done)

    def _several(self, variant: Variant, resolved: Resolved) -> Several | None:
        """What to run of a variant; None: itself, once."""
        if self.uncertainty is None and resolved.scenario.replications == 1:
            return None
        if self.uncertainty is not None and resolved.profile.spread is None:
            raise InputError(f"{variant.file}: --uncertainty: {no_spread(resolved.scenario.profile)}")
        return Several(resolved, self.uncertainty or resolved.scenario.replications, self.uncertainty is not None)

    def _run(self, variant: Variant, resolved: Resolved, several: Several | None, folder: Path) -> None:
        """The only run of a variant, or the first of several."""
        label = variant.label or resolved.scenario.name
        if several is not None:
            remove_single(folder)
            remove_ensemble(folder)
            folder, resolved = member_folder(folder, resolved.scenario.seed), several.single()
        try:
            with ProgressBar(label, resolved.scenario.workload.num_requests) as progress:
                run = self.execute(resolved, label, folder, progress)
            self._write_timeline(run, folder)
        except InputError as error:
            raise InputError(f"{variant.file}: {error}") from None
        self.done.append((variant, run))

    def _write_timeline(self, run: Run, folder: Path) -> None:
        if self.timeline is not None and not run.partial:
            left_out = write_timeline(run, folder, self.timeline)
            self.timelines.append((folder, left_out))

    def _replicate(self, elapsed: float) -> None:
        """The other runs of all variants, whose first ones took `elapsed` seconds."""
        parts = zip(self.several, self._labelled, self.folders, strict=True)
        groups = [Group(several, run, label, folder) for several, (label, run), folder in parts if several]
        if groups:
            complete(groups, self.jobs, each=elapsed / len(self.done))

    def _write_plots(self) -> list[Path]:
        folder = self.base / "plots"
        with writing(folder):
            remove_plots(folder)
            (self.base / REPORT).unlink(missing_ok=True)  # of the runs that were here before
            if not self.plots or self._interrupted:
                return []
            from sim.plots import write_plots  # with matplotlib, which takes half a second

            return write_plots(self._labelled, folder)


def _check_timelines(checked: Sequence[tuple[Variant, Resolved]]) -> None:
    for variant, resolved in checked:
        if not resolved.scenario.measure.iterations:
            raise InputError(f"{variant.file}: --trace: a timeline is of iterations, and measure.iterations is false")
