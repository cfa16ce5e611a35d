"""Reads a CSV of timings: rows of one iteration each, below `#` lines with all of a profile that is not fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workloads.errors import InputError

STAGES = ("encoder", "prefill", "decode", "mixed")
COUNTS = ("images", "tokens", "chunk", "cached", "prompt", "decodes", "context")
PARTS = ("gemm_ms", "prefill_attention_ms", "decode_attention_ms")  # of `total_ms`; all three or none
READER = ("columns", "measurement")  # what a header tells the reader of the CSV alone
COLUMNS = {"stage": "str"} | dict.fromkeys(COUNTS, "int64") | {"total_ms": "float64"}


def read_rows(csv: Path) -> pd.DataFrame:
    """The timings. Without PARTS they are whole iterations, as `tandem calibrate` measures them.

    Raises ValueError or OSError where the file is no such CSV, and InputError for what it says.
    """
    given = pd.read_csv(csv, comment="#", nrows=0).columns
    parts = PARTS if set(PARTS) & set(given) else ()
    kinds = COLUMNS | dict.fromkeys(parts, "float64") | ({"cv": "float64"} if "cv" in given else {})
    rows = pd.read_csv(csv, comment="#", usecols=list(kinds), dtype=kinds)
    if missing := set(STAGES) - set(rows.stage):
        raise InputError(f"no timings of {', '.join(sorted(missing))}")
    if strange := set(rows.stage) - set(STAGES):
        raise InputError(f"no stage is called {', '.join(sorted(map(str, strange)))}; they are {', '.join(STAGES)}")
    if not ((rows.total_ms > 0) & (rows.total_ms < float("inf"))).all():
        raise InputError("total_ms must be greater than 0 in every row")
    if (rows[list(COUNTS)] < 0).any(axis=None):
        raise InputError("counts of images, tokens and the like are not negative")
    return rows


def has_parts(rows: pd.DataFrame) -> bool:
    """Whether the language model's time is taken apart."""
    return PARTS[0] in rows


def read_header(csv: Path) -> dict[str, Any]:
    """The YAML of the lines that begin with `#`."""
    lines = csv.read_text(encoding="utf-8").splitlines()
    header = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#")))
    if not isinstance(header, dict):
        raise InputError("the lines that begin with # hold no YAML mapping")
    for name in READER:
        header.pop(name, None)
    return header
