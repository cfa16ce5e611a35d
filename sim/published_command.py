"""One `tandem published`: what others measured, simulated and compared, as a page; or the front ends fitted again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.files import check_writable, usable, write_text, writing
from sim.printing import printing
from sim.processes import in_processes
from sim.profiles import REPOSITORY
from sim.progress import ProgressBar
from sim.published_page import Scene, claims_sheet, page
from sim.published_scenes import run_scenes
from sim.serving_fit import Fit, fit
from sim.serving_record import write_fits
from sim.serving_rows import ServingRow, read_rows
from sim.serving_scenario import FOLDER, SUFFIX
from sim.serving_stages import explained
from sim.serving_table import Prediction, fidelity, predict
from sim.sheet import print_sheet
from sim.tables import new_console, say
from workloads.errors import InputError

ROWS = FOLDER / "h200_qwen3vl8b_serving.csv"
PAGE = REPOSITORY / "docs" / "published.md"


class PublishedCommand:
    """Raises InputError for wrong input, before anything is written."""

    def __init__(self, serving: Path | None, out: Path | None, jobs: int | None, *, refit: bool = False) -> None:
        given = {"--serving": serving, "--refit": refit or None, "--out": out}
        if len(several := [option for option, value in given.items() if value is not None]) > 1:
            raise InputError(f"{' and '.join(several)} do not go together")
        self.serving = usable(serving) if serving else None
        self.page = usable(out) if out else PAGE
        if self.page.suffix != ".md":
            raise InputError(f"--out: {self.page}: should be a page, as page.md; its plots go into a folder page")
        if serving is None and not refit:
            check_writable(self.page)
        self.jobs = jobs
        self.refit = refit
        self.console = new_console()

    def __call__(self) -> None:
        """Print all of it and write the page; of another file of measured rows, print what is predicted."""
        if self.refit:
            self._refit()
            return
        with ProgressBar("servers", None) as progress:
            predictions = predict(read_rows(self.serving or ROWS), self.jobs, progress)
        self._print_server(predictions)
        if self.serving is None:
            self._scenarios(predictions)

    def _refit(self) -> None:
        """The front ends' costs anew, to the rows that are shipped; written into the engines' scenarios."""
        rows = read_rows(ROWS)
        tasks = [(engine, rows) for engine in dict.fromkeys(row.engine for row in rows)]
        fits = sorted(in_processes(_fit, tasks, self.jobs), key=lambda found: found.engine)
        written = write_fits(fits, ROWS)
        with printing():
            for found in fits:
                costs = ", ".join(f"{path} {value:g} ms" for path, value in found.costs.items())
                say(self.console, f"{found.engine}: {costs}; loss {found.loss:.3f}")
            for path in written:
                say(self.console, str(path))

    def _print_server(self, predictions: Sequence[Prediction]) -> None:
        with printing():
            for engine in dict.fromkeys(p.row.engine for p in predictions):
                those = [p for p in predictions if p.row.engine == engine]
                print_sheet(self.console, fidelity(engine, those))
                print_sheet(self.console, explained(engine, those))

    def _scenarios(self, predictions: Sequence[Prediction]) -> None:
        files = [file for file in sorted(FOLDER.glob("*.yaml")) if not file.name.endswith(SUFFIX)]
        with ProgressBar("scenarios", None) as progress:
            scenes = run_scenes(files, self.jobs, progress)
        with printing():
            print_sheet(self.console, claims_sheet(scenes, "published and simulated"))
        self._write(page(predictions, scenes), scenes)

    def _write(self, text: str, scenes: Sequence[Scene]) -> None:
        from sim.plot_published import sensitivity  # with matplotlib, which takes half a second
        from sim.plot_style import save

        folder = self.page.parent / self.page.stem
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            plots = [save(sensitivity(scene), folder / f"{scene.name}.png") for scene in scenes if scene.settings]
            write_text(self.page, text)
        with printing():
            say(self.console, f"{self.page}, and {len(plots)} plots in {folder}")


def _fit(task: tuple[str, list[ServingRow]]) -> Fit:
    return fit(*task)
