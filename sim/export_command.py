"""One `tandem export`: a run in the files of a benchmark, for whatever reads those."""

from __future__ import annotations

from pathlib import Path

from sim.complaints import nearest
from sim.export_aiperf import export_aiperf
from sim.files import usable
from sim.printing import printing
from sim.seen_runs import seen_run
from sim.tables import new_console, say
from workloads.errors import InputError

TOOLS = {"aiperf": export_aiperf}


def export_command(tool: str, run: Path, out: Path | None) -> None:
    """Raises InputError, one line, before anything is written."""
    if tool.lower() not in TOOLS:
        raise InputError(f"{tool}: no benchmark whose files can be written{nearest(tool.lower(), list(TOOLS))}")
    folder = usable(run)
    view = seen_run(folder)
    paths = TOOLS[tool.lower()](view, usable(out) if out else folder / "aiperf")
    with printing():
        console = new_console()
        if view.gaps is None:
            say(console, "no inter_chunk_latency: the times of single tokens are not known")
        for path in paths:
            say(console, str(path))
