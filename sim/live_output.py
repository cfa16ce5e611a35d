"""Writes the folder of a live run: the files of a simulated one, its plans, its tokens, and what executed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sim.files import whole, write_json, writing
from sim.output import write_run
from sim.plan_log import write_plans
from sim.result import Run

PLANS, TOKENS, LIVE, COMPARISON = "plans.jsonl.gz", "tokens.parquet", "live.json", "compare.json"
FIDELITY = "fidelity.md"
CALIBRATION = "calibration.csv"
GAPS, TRACE = "gaps.parquet", "trace.jsonl"  # of a run that came from a benchmark's file
COMPARISON_PLOTS = "compare_*.png"


def write_live_run(
    run: Run, label: str, folder: Path, *, plans: list[str], tokens: pa.Table, about: dict[str, Any]
) -> None:
    """`run.json` last of all, as always: whoever finds one finds all files of one run beside it.

    `plans` are the lines of `sim.plan_log`; `tokens` has `request_id`, `tokens` and, where asked for, `logprobs`;
    `about` says what executed the run, with its `clock`. What was compared with an earlier run here is removed.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").unlink(missing_ok=True)
        for name in (COMPARISON, FIDELITY):
            (folder / name).unlink(missing_ok=True)
        remove_comparison_plots(folder)
        write_plans(plans, folder / PLANS)
        with whole(folder / TOKENS) as partial:
            pq.write_table(tokens, partial, compression="snappy")
        write_json(about, folder / LIVE)
        write_run(run, label, folder)


def remove_live_files(folder: Path) -> None:
    """Where another run takes the place of a live or an imported one."""
    with writing(folder):
        if is_imported(folder):
            (folder / GAPS).unlink(missing_ok=True)
            (folder / TRACE).unlink(missing_ok=True)
        (folder / "run.json").unlink(missing_ok=True)
        for name in (PLANS, TOKENS, LIVE, COMPARISON, FIDELITY, CALIBRATION):
            (folder / name).unlink(missing_ok=True)
        remove_comparison_plots(folder)


def is_imported(folder: Path) -> bool:
    """Whether the run there came from a benchmark's file: no scenario describes it."""
    return (folder / "run.json").is_file() and (folder / TRACE).exists() and not (folder / "scenario.yaml").exists()


def remove_comparison_plots(folder: Path) -> None:
    for path in (folder / "plots").glob(COMPARISON_PLOTS):
        path.unlink(missing_ok=True)
