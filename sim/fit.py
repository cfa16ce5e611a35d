"""Makes a profile from timings: a CSV of ours, or published silicon tables (`aiconfigurator:...`).

A CSV opens with `#` lines that hold, as YAML, all of the profile that is not fitted: device, model, source,
corrections, memory. The same timings always give the same profile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import ValidationError

from sim.figures import Compared, HeldOut, Range, StageErrors, Stated
from sim.files import whole, writing
from sim.fit_parts import CostFit, fit_parts
from sim.fit_texts import FORMULA, METHOD, METHOD_TOTALS, UNITS, source, source_totals
from sim.profiles import Profile, first_problem
from sim.regression import bias
from sim.silicon import PREFIX, Silicon
from sim.timings import has_parts, read_header, read_rows
from sim.withheld import mean_errors, spread
from workloads.errors import InputError

LISTS = re.compile(r"\[\s+((?:[-\d.e+]+,\s+)*[-\d.e+]+)\s+\]")  # of numbers, as json indents them


def make_profile(timings: str | Path) -> Profile:
    """Raises InputError for a source that is none: a header that is no YAML or lacks a field, timings that lack a
    column or a stage, no such published table, or no package that has it.
    """
    if str(timings).startswith(PREFIX):
        silicon = Silicon.parse(str(timings))
        rows = silicon.rows()
        return Profile.model_validate(silicon.header() | _fitted(rows))
    try:
        rows = read_rows(Path(timings))
        return Profile.model_validate(read_header(Path(timings)) | _fitted(rows))
    except ValidationError as error:
        raise InputError(f"{timings}: {first_problem(error)}") from None
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{timings}: {' '.join(str(error).split())}") from None


def write_profile(profile: Profile, path: Path) -> None:
    """As JSON, a list of numbers on one line."""
    content = profile.model_dump(mode="json", exclude_none=True)
    if not content["tables"]:
        del content["tables"]
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    text = LISTS.sub(lambda numbers: f"[{' '.join(numbers[1].split())}]", text)
    with writing(path), whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _fitted(rows: pd.DataFrame) -> dict[str, Any]:
    """The parts of a profile that follow from its timings, in the schema's words."""
    found = fit_parts(rows)
    of = source if has_parts(rows) else source_totals
    coefficients: dict[str, Any] = {
        name: Stated(value=found.coefficients[name], unit=UNITS[name], source=of(name)) for name in UNITS
    }
    return {
        "formula": FORMULA,
        "coefficients": coefficients,
        "tables": found.tables,
        "range": _range(rows),
        "held_out": _held_out(rows, found),
        "spread": spread(found.tested),
    }


def _held_out(rows: pd.DataFrame, found: CostFit) -> HeldOut:
    return HeldOut(
        method=METHOD if has_parts(rows) else METHOD_TOTALS,
        unit="percent",
        mape=StageErrors.model_validate(_short(mean_errors(found.tested))),
        bias=StageErrors.model_validate(_short(bias(rows, found.predict(rows)))),
        **{part: Compared.model_validate(errors) for part, errors in found.compared.items()},
    )


def _range(rows: pd.DataFrame) -> Range:
    encoder, prefill, decode = (rows[rows.stage == stage] for stage in ("encoder", "prefill", "decode"))
    return Range(
        images=_span(encoder.images),
        encoder_tokens_per_image=_span(encoder.tokens),
        encoder_tokens=_span(encoder.images * encoder.tokens),
        chunk=_span(prefill.chunk),
        cached=_span(prefill.cached),
        decodes=_span(decode.decodes),
        context_per_decode=_span(decode.context),
    )


def _span(column: pd.Series[int]) -> tuple[int, int]:
    return int(column.min()), int(column.max())


def _short(percents: Mapping[str, float]) -> dict[str, float]:
    return {stage: round(percent, 2) for stage, percent in percents.items()}
