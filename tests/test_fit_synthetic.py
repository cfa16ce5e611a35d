"""Timings made from known coefficients: found again; with noise, predictions near the truth; tables where it steps."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_fit_calibrated import write
from typer.testing import CliRunner

import cli
from sim.fit_parts import CostFit, fit_parts
from sim.profiles import load_profile
from sim.regression import decode_terms, encoder_terms, fit, gemm, num_tokens, predict, prefill_terms
from sim.timings import COUNTS

TRUE = {"E0": 1.4, "E1": 0.0018, "E2": 3e-7, "G0": 4.7, "G1": 0.015, "G2": 0.004, "p": 2.5}
TRUE |= {"P0": 0.5, "P1": 0.0004, "P2": 9e-7, "D0": 0.3, "D1": 0.004, "D2": 3.3e-5}
SLOW = {"E0": 6.0, "E1": 0.009, "E2": 3.5e-6, "G0": 24.0, "G1": 0.05, "G2": 0.03, "p": 6.0}
SLOW |= {"P0": 0.7, "P1": 0.0006, "P2": 2e-6, "D0": 0.1, "D1": 0.01, "D2": 1e-4}


def grid() -> pd.DataFrame:
    rows = [("encoder", n, s, 0, 0, 0, 0, 0) for n, s in product((1, 2, 4, 8, 16), (64, 256, 1024, 2304, 4096, 9216))]
    chunks = (1, 8, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
    rows += [("prefill", 0, 0, q, c, 0, 0, 0) for q, c in product(chunks, (0, 512, 2048, 8192))]
    rows += [
        ("decode", 0, 0, 0, 0, 0, b, x) for b, x in product((1, 2, 4, 8, 16, 32, 64, 128), (256, 1024, 4096, 16384))
    ]
    rows += [("mixed", 0, 0, q, 0, x, b, x) for q, b, x in product((256, 1024), (4, 16, 64), (1024, 4096))]
    return pd.DataFrame(rows, columns=["stage", *COUNTS])


def timed(c: dict[str, float], cv: float = 0.0, seed: int = 0, step: float = 0.0) -> pd.DataFrame:
    """Every part with noise of its own; above each 256 tokens matrix products take a step up."""
    rows = grid().assign(gemm_ms=0.0)  # so that mixed rows are published ones
    tokens, steps = num_tokens(rows), np.ceil(num_tokens(rows) / 256)
    rng = np.random.default_rng(seed)
    noise = [np.exp(rng.normal(0, cv, len(rows))) for _ in range(4)]
    stepped = gemm(np.array([c["G0"], c["G1"], c["G2"], c["p"]]), tokens) * (1 + step * (steps % 2))
    rows["gemm_ms"] = np.where(tokens > 0, stepped * noise[0], 0)
    rows["prefill_attention_ms"] = np.where(rows.chunk > 0, prefill_terms(rows) @ _of(c, "P") * noise[1], 0)
    rows["decode_attention_ms"] = np.where(rows.decodes > 0, decode_terms(rows) @ _of(c, "D") * noise[2], 0)
    encode = np.where(rows.images > 0, encoder_terms(rows) @ _of(c, "E") * noise[3], 0)
    return rows.assign(total_ms=encode + rows.gemm_ms + rows.prefill_attention_ms + rows.decode_attention_ms)


def _of(c: dict[str, float], letter: str) -> list[float]:
    return [c[f"{letter}{power}"] for power in range(3)]


@pytest.mark.parametrize("true", [TRUE, SLOW], ids=["fast", "slow"])
def test_coefficients_are_found_again(true: dict[str, float]) -> None:
    assert fit(timed(true)) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("true", [TRUE, SLOW], ids=["fast", "slow"])
def test_with_noise_predictions_stay_near_the_truth(true: dict[str, float], seed: int) -> None:
    """5 % on every single time; mean errors by stage, of mixed iterations too, which are not fitted."""
    rows = timed(true, cv=0.05, seed=seed)
    error = np.abs(predict(fit(rows), rows) / predict(true, rows) - 1)
    assert pd.Series(error).groupby(rows.stage).mean().max() < 0.03


@pytest.fixture(scope="module")
def noisy() -> CostFit:
    return fit_parts(timed(TRUE, cv=0.05))


def test_noise_is_no_step(noisy: CostFit) -> None:
    """A table would learn it by heart, and be the worse on what was withheld."""
    assert noisy.tables.encode is None and noisy.tables.gemm is None
    assert all(errors["table"] > errors["formula"] for errors in noisy.compared.values())


def test_no_coefficient_is_negative_and_sums_are_kept(noisy: CostFit) -> None:
    rows = timed(TRUE, cv=0.05)
    assert min(noisy.coefficients.values()) >= 0
    sums = rows.assign(predicted=noisy.predict(rows)).groupby("stage")[["predicted", "total_ms"]].sum()
    off = sums.predicted / sums.total_ms - 1
    assert off[["encoder", "prefill", "decode"]].abs().max() < 1e-3


def test_parts_of_a_csv_are_fitted_for_themselves(tmp_path: Path) -> None:
    csv = write(timed(TRUE), tmp_path / "parts.csv")
    result = CliRunner().invoke(cli.app, ["fit", str(csv)])
    assert result.exit_code == 0 and "gemm: the formula; withheld, formula" in result.output
    profile = load_profile(csv.with_suffix(".json"))
    assert {name: figure.value for name, figure in profile.coefficients} == pytest.approx(TRUE, rel=0.01)
    assert "mixed: never fitted" in profile.held_out.method and profile.held_out.mape.mixed < 0.1
    assert profile.range.encoder_tokens == (64, 16 * 9216) and profile.range.decodes == (1, 128)


def test_steps_become_a_table() -> None:
    """Every other 256 tokens cost half as much again: the formula runs through the middle, the table follows."""
    found = fit_parts(timed(TRUE, step=0.5))
    assert found.tables.gemm is not None and found.tables.encode is None
    assert found.compared["gemm"]["table"] < found.compared["gemm"]["formula"]
    assert all(before <= after for before, after in pairwise(found.tables.gemm.ms))
