"""One `tandem import`: what a benchmark of a real server wrote becomes a measured run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sim.client_view import ClientView
from sim.complaints import nearest
from sim.files import usable
from sim.live_output import TRACE
from sim.measured_aiperf import read_aiperf
from sim.measured_guidellm import read_guidellm
from sim.measured_output import notes, write_measured
from sim.measured_vllm import read_vllm
from sim.printing import printing
from sim.published_table import number
from sim.tables import new_console, new_table, say
from sim.variants import folder_names
from workloads.errors import InputError

TOOLS: Mapping[str, Callable[[Path], list[ClientView]]] = {
    "aiperf": read_aiperf,
    "vllm-bench": read_vllm,
    "guidellm": read_guidellm,
}
SHOWN = {
    "completed": "completed",
    "failed": "failed",
    "requests/s": "request_throughput",
    "output tokens/s": "output_throughput",
    "TTFT p50 (ms)": "median_ttft_ms",
    "TTFT p99 (ms)": "p99_ttft_ms",
    "ITL mean (ms)": "mean_itl_ms",
    "TPOT mean (ms)": "mean_tpot_ms",
    "E2E p99 (ms)": "p99_e2el_ms",
}


def import_command(tool: str, file: Path, out: Path | None) -> None:
    """Raises InputError, one line, before anything is written."""
    if tool.lower() not in TOOLS:
        raise InputError(f"{tool}: no benchmark that can be read{nearest(tool.lower(), list(TOOLS))}")
    try:
        runs = TOOLS[tool.lower()](usable(file))
    except InputError:
        raise
    except (OverflowError, ValueError) as error:  # of a time or a count: infinite, undefined, or past 64 bits
        raise InputError(f"{file}: has a number that is out of range: {error}") from None
    base = usable(out) if out else Path("runs", f"{runs[0].name}.live")
    folders = [base / name for name in folder_names([run.label for run in runs])] if len(runs) > 1 else [base]
    for run, folder in zip(runs, folders, strict=True):
        write_measured(run, folder)
    with printing():
        _report(runs, folders)


def _report(runs: list[ClientView], folders: list[Path]) -> None:
    console, table = new_console(), new_table()
    table.add_column(f"measured by {runs[0].source}")
    for run in runs:
        table.add_column(run.label or run.name, justify="right")
    for title, key in SHOWN.items():
        figures = [run.summary[key] for run in runs]
        table.add_row(title, *("-" if figure is None else number(figure) for figure in figures))
    console.print(table)
    for run, folder in zip(runs, folders, strict=True):
        for note in notes(run):
            say(console, note)
        say(console, f"{run.label or run.name}: {folder}")
    again = f"--set workload='{{kind: jsonl, path: {(folders[0] / TRACE).resolve()}}}'"
    say(console, f"to simulate its load: tandem run SCENARIO {again}")
