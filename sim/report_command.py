"""One `tandem report`: folders of runs become one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.files import check_writable, usable, whole, writing
from sim.output import REPORT
from sim.printing import printing
from workloads.errors import InputError

PAGES = (".html", ".htm")
MOST_RUNS = 12  # as many colours and dashes as can be told apart


class ReportCommand:
    """Raises InputError for wrong input, before anything is written."""

    def __init__(self, folders: Sequence[Path], out: Path | None) -> None:
        self.folders = [usable(folder) for folder in folders]
        self.out = usable(out) if out else self.folders[0] / REPORT
        for folder in self.folders:
            if not folder.is_dir():
                raise InputError(f"{folder}: is no folder")
        if self.out.exists() and self.out.suffix not in PAGES:
            raise InputError(f"--out: {self.out}: is there and is no page; pages end in {' or '.join(PAGES)}")
        check_writable(self.out)

    def __call__(self) -> int:
        """Write the page and say where; returns the exit code."""
        from sim.report_data import content  # with matplotlib, which takes half a second
        from sim.report_page import page
        from sim.report_runs import read_runs

        runs = read_runs(self.folders)
        if len(runs) > MOST_RUNS:
            raise InputError(f"{len(runs)} runs; at most {MOST_RUNS} can be told apart in one report")
        text = page(content(runs))
        with writing(self.out.parent), whole(self.out) as partial:
            partial.write_text(text, encoding="utf-8")
        with printing():
            print(f"{self.out}: {len(runs)} run{'s' * (len(runs) > 1)}, {len(text.encode()) / 1e6:.1f} MB")
        return 0
