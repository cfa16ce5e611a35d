"""The folder of a measured run: its tables and figures as a run's, the gaps between tokens, the load as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sim.client_view import ClientView, Gaps, client_view
from sim.ensemble_output import remove_ensemble, remove_single
from sim.files import whole, write_json, writing
from sim.live_output import GAPS, TRACE, remove_live_files
from sim.output import write_requests
from sim.recorded import read_json, read_table
from workloads.traces import write_jsonl


def write_measured(run: ClientView, folder: Path) -> None:
    """Whoever finds a `run.json` finds all files of one run beside it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_live_files(folder)
        remove_ensemble(folder)
        remove_single(folder)
        write_requests(run.requests, folder / "requests.parquet")
        _write_gaps(run.gaps, folder / GAPS)
        write_jsonl(folder / TRACE, run.trace())
        write_json(run.summary, folder / "summary.json")
        write_json(_about(run), folder / "run.json")


def _about(run: ClientView) -> dict[str, Any]:
    return {
        "name": run.name,
        "label": run.label or run.name,
        "origin": run.origin,
        "source": run.source,
        "verdict": "finished",
        "partial": False,
        "load": run.load,
        "notes": notes(run),
    }


def notes(run: ClientView) -> list[str]:
    """What is to be known of it, one line each."""
    told = []
    if run.gaps is None:
        told.append("no ITL: the times of single tokens were not recorded")
    elif (late := _bundled(run)) > 0:
        told.append(f"{late:,} tokens came together with others: ITL gaps are between what came at once")
    if run.requests["num_items"].any():
        told.append("images: their sizes are unknown, so trace.jsonl has their tokens as text")
    left_out = len(run.requests) - len(run.trace())
    if left_out:
        told.append(f"{left_out:,} requests of unknown lengths are not in trace.jsonl")
    return told


def _bundled(run: ClientView) -> int:
    """Tokens of finished requests that have no gap of their own."""
    assert run.gaps is not None
    done = run.requests[run.requests["status"] == "finished"]
    return int((done["output_tokens"] - 1).clip(lower=0).sum()) - len(run.gaps[1])


def _write_gaps(gaps: Gaps | None, path: Path) -> None:
    if gaps is None:
        path.unlink(missing_ok=True)
        return
    owners, values = gaps
    with whole(path) as partial:
        pq.write_table(pa.table({"request_id": owners, "gap": values / 1e9}), partial, compression="snappy")


def read_measured(folder: Path) -> ClientView:
    """Raises InputError, one line, where one of its files is not sound."""
    about = read_json(folder / "run.json", {"name": str, "source": str})
    requests = read_table(folder / "requests.parquet", client_view("", "", []).requests)
    return ClientView(about["source"], about["name"], requests, _read_gaps(folder / GAPS))


def _read_gaps(path: Path) -> Gaps | None:
    if not path.exists():
        return None
    table = read_table(path, pd.DataFrame({"request_id": pd.Series(dtype=int), "gap": pd.Series(dtype=float)}), False)
    return table["request_id"].to_numpy(np.int64), np.rint(table["gap"].to_numpy(float) * 1e9).astype(np.int64)
