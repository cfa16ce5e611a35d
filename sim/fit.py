"""Makes a profile from a CSV of timings: `python -m sim.fit timings.csv [--out profile.json]`.

The CSV opens with `#` lines that hold, as YAML, all of the profile that is not fitted: device, model, source,
corrections, memory. The same CSV always gives the same bytes.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import ValidationError

from sim import regression, totals
from sim.figures import HeldOut, Range, StageErrors, Stated
from sim.files import whole, writing
from sim.profiles import Profile, first_problem
from sim.timings import has_parts, read_header, read_rows
from sim.withheld import mean_errors, spread
from workloads.errors import InputError
from workloads.frozen import LEAST

FORMULA = (
    "t = host + encode + gemm(T) + prefill_attention + decode_attention; "
    "encode = e0 + E0 + E1*sum(s) + E2*sum(s^2), s: pre-merger tokens of each frame, 0 without images; "
    "gemm(T) = (G0^p + (G1*T)^p)^(1/p) + G2*T, T: prefill and decode tokens; "
    "prefill_attention = P0 + P1*sum(q) + P2*sum(q*(c + q/2)), q: chunk, c: tokens already cached, 0 without chunks; "
    "decode_attention = D0 + D1*b + D2*sum(context), b: decodes, 0 without decodes"
)
METHOD = (
    "encoder: each image size withheld in turn, batches of 1024 tokens and more; prefill and decode: each token count "
    "withheld in turn from both, then each context, whichever is harder; mixed: never fitted. bias: summed time with "
    "every row fitted"
)
METHOD_TOTALS = (
    "whole times of iterations; encoder: the token count of each batch withheld in turn; prefill, decode and mixed: "
    "each token count withheld in turn from all three; where there is but one, with it. bias: summed time with every "
    "row fitted, brought to 0 for encoder and language model, and for each stage of the latter where it can be"
)
UNITS = {
    "E0": "ms",
    "E1": "ms/token",
    "E2": "ms/token^2",
    "G0": "ms",
    "G1": "ms/token",
    "G2": "ms/token",
    "p": "1",
    "P0": "ms",
    "P1": "ms/token",
    "P2": "ms/token^2",
    "D0": "ms",
    "D1": "ms/decode",
    "D2": "ms/token",
}
STAGES = {"E": "encoder rows", "G": "prefill and decode rows", "p": "prefill and decode rows"}
STAGES |= {"P": "prefill rows", "D": "decode rows"}
DIGITS = 6  # significant; far below the errors, and the same on every machine


def make_profile(csv: Path) -> Profile:
    """Raises InputError when the header is no YAML or lacks a field, or the timings lack a column or a stage."""
    try:
        rows = read_rows(csv)
        form = regression if has_parts(rows) else totals
        fitted = {name: _rounded(value) for name, value in form.fit(rows).items()}
        return Profile.model_validate(read_header(csv) | _fitted(rows, fitted))
    except ValidationError as error:
        raise InputError(f"{csv}: {first_problem(error)}") from None
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{csv}: {' '.join(str(error).split())}") from None


def write_profile(profile: Profile, path: Path) -> None:
    text = json.dumps(profile.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False) + "\n"
    with writing(path), whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _fitted(rows: pd.DataFrame, fitted: Mapping[str, float]) -> dict[str, Any]:
    """The parts of a profile that follow from its timings, in the schema's words."""
    form, method, source = (regression, METHOD, _source) if has_parts(rows) else (totals, METHOD_TOTALS, _source_totals)
    tested = form.tested(rows, dict(fitted))
    bias = StageErrors.model_validate(_short(regression.bias(rows, dict(fitted))))
    return {
        "formula": FORMULA,
        "coefficients": {name: Stated(value=fitted[name], unit=UNITS[name], source=source(name)) for name in UNITS},
        "range": _range(rows),
        "held_out": HeldOut(method=method, unit="percent", mape=mean_errors(tested), bias=bias),
        "spread": spread(tested),
    }


def _source(name: str) -> str:
    return f"least squares, {STAGES[name[0]]} of the CSV"


def _source_totals(name: str) -> str:
    if name == "P1":
        return "0: whole times tell it not from gemm"
    return (
        f"least squares on whole times, {'encoder' if name[0] == 'E' else 'prefill, decode and mixed'} rows of the CSV"
    )


def _range(rows: pd.DataFrame) -> Range:
    encoder, prefill, decode = (rows[rows.stage == stage] for stage in ("encoder", "prefill", "decode"))
    return Range(
        images=_span(encoder.images),
        encoder_tokens_per_image=_span(encoder.tokens),
        chunk=_span(prefill.chunk),
        cached=_span(prefill.cached),
        decodes=_span(decode.decodes),
        context_per_decode=_span(decode.context),
    )


def _span(column: "pd.Series[int]") -> tuple[int, int]:
    return int(column.min()), int(column.max())


def _rounded(value: float) -> float:
    """Six significant digits; what a solver leaves on a bound, or too little for a profile to hold, is zero."""
    return 0.0 if value < LEAST else float(f"{value:.{DIGITS}g}")


def _short(percents: Mapping[str, float]) -> dict[str, float]:
    return {stage: round(percent, 2) for stage, percent in percents.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the cost model's formula to a CSV of timings.")
    parser.add_argument("csv", type=Path)
    parser.add_argument("--out", type=Path, help="default: beside the CSV, ending in .json")
    arguments = parser.parse_args()
    out = arguments.out or arguments.csv.with_suffix(".json")
    try:
        profile = make_profile(arguments.csv)
    except InputError as error:
        parser.error(str(error))
    write_profile(profile, out)
    print(f"{out}: held-out errors in percent {profile.held_out.mape.model_dump()}")


if __name__ == "__main__":
    main()
