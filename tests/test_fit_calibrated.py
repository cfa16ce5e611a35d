"""Profiles from whole times of iterations, as a calibration measures them: true, unbiased; bad input in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cli
from sim import regression, totals
from sim.cost_model import CostModel
from sim.fit import make_profile
from sim.fit_command import NEEDS_SCIPY
from sim.fit_parts import fit_parts
from sim.profiles import REPOSITORY, load_profile
from sim.timings import read_rows
from sim.withheld import mean_errors
from workloads.errors import InputError

HEADER = """\
# device:
#   name: a laptop
#   memory: {value: 8000000000, unit: bytes, source: assumed}
# model: small
# label: measured on a laptop
# source: {package: tandem, version: "1", licence: Apache-2.0, system: Linux, backend: torch, dtype: float32, gpus: 1,
#   queried: 2026-11}
# corrections:
#   label: measured on the host
#   encoder_offset: {value: 0.0, unit: ms, source: "none: whole calls were timed"}
#   language_model_factor: {value: 1.0, unit: "1", source: "none: whole iterations were timed"}
#   host: {value: 0.25, unit: ms, source: "median of iterations"}
# memory:
#   weights: {value: 100000000, unit: bytes, source: the model}
#   dtype: {value: 4, unit: bytes, source: float32}
#   vision_hidden: {value: 64, unit: elements, source: the model}
#   vision_mlp: {value: 256, unit: elements, source: the model}
#   patch: {value: 14, unit: pixels, source: the model}
#   temporal_patch: {value: 2, unit: frames, source: the model}
#   channels: {value: 3, unit: channels, source: RGB}
"""
CPU = {"E0": 1.0, "E1": 0.02, "E2": 1e-6, "G0": 3.0, "G1": 0.15, "G2": 0.0, "p": 3.0}
CPU |= {"P0": 0.5, "P1": 0.0, "P2": 2e-5, "D0": 0.2, "D1": 0.6, "D2": 3e-4}
GPU = {"E0": 1.4, "E1": 0.0015, "E2": 9e-8, "G0": 4.5, "G1": 0.015, "G2": 0.0008, "p": 4.0}
GPU |= {"P0": 0.1, "P1": 0.0002, "P2": 6e-7, "D0": 0.1, "D1": 0.002, "D2": 3e-5}
NAMES = ("stage", "images", "tokens", "chunk", "cached", "prompt", "decodes", "context")


def grid() -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = [("encoder", n, s, 0, 0, 0, 0, 0) for n in (1, 2, 4, 8) for s in (64, 256, 1024)]
    rows += [("prefill", 0, 0, q, c, 0, 0, 0) for q in (16, 64, 256, 512) for c in (0, 256, 1024)]
    rows += [("decode", 0, 0, 0, 0, 0, b, x) for b in (1, 2, 4, 8, 16, 32) for x in (32, 256, 1024)]
    rows += [("mixed", 0, 0, q, c, 0, b, 256) for q in (32, 128, 512) for c in (0, 256) for b in (2, 8, 32)]
    return pd.DataFrame(rows, columns=list(NAMES))


def timed(c: dict[str, float], cv: float = 0.0, seed: int = 0) -> pd.DataFrame:
    rows = grid()
    noise = np.exp(np.random.default_rng(seed).normal(0, cv, len(rows)))
    return rows.assign(total_ms=regression.predict(c, rows) * noise, repeats=7, cv=cv)


def write(rows: pd.DataFrame, path: Path, header: str = HEADER) -> Path:
    path.write_text(header + rows.to_csv(index=False))
    return path


@pytest.mark.parametrize("true", [CPU, GPU], ids=["cpu", "gpu"])
def test_without_noise_every_row_is_predicted(true: dict[str, float]) -> None:
    """P1 and the slopes of gemm and decode are not told apart, so it is times that must agree."""
    rows = timed(true)
    fitted = totals.fit(rows)
    assert regression.predict(fitted, rows) == pytest.approx(rows.total_ms, rel=2e-3)
    assert set(fitted) == set(true) and fitted["P1"] == 0.0 and min(fitted.values()) >= 0
    if true["P1"] == 0.0:
        assert {name: fitted[name] for name in ("E1", "G0", "G1", "P2", "D1", "D2")} == pytest.approx(
            {name: true[name] for name in ("E1", "G0", "G1", "P2", "D1", "D2")}, rel=0.01
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("true", [CPU, GPU], ids=["cpu", "gpu"])
def test_with_noise_sums_are_unbiased_and_the_truth_is_near(true: dict[str, float], seed: int) -> None:
    rows = timed(true, cv=0.05, seed=seed)
    fitted = totals.fit(rows)
    assert regression.bias(rows, regression.predict(fitted, rows)) == pytest.approx(
        dict.fromkeys(("encoder", "prefill", "decode", "mixed"), 0), abs=0.01
    )
    truth = regression.predict(true, rows)
    assert np.abs(regression.predict(fitted, rows) / truth - 1).mean() < 0.03


def test_mixed_rows_of_a_calibration_have_the_exact_cached_tokens() -> None:
    """Published rows have a prompt, in which the chunk lies anywhere; there is no prompt in a calibration's."""
    shape = {"stage": "mixed", "images": 0, "tokens": 0, "chunk": 100, "decodes": 1, "context": 1}
    rows = pd.DataFrame([{**shape, "cached": 400, "prompt": 0}, {**shape, "cached": 0, "prompt": 900}])
    assert regression.prefill_terms(rows)[:, 2].tolist() == [100 * 450, 100 * 450]
    several = pd.DataFrame([{**shape, "stage": "prefill", "cached": 0, "prompt": 300}])
    assert regression.prefill_terms(several)[:, 2].tolist() == [100 * 150]
    first = pd.DataFrame([{**shape, "cached": 0, "prompt": 0}, {**shape, "stage": "prefill", "cached": 7, "prompt": 0}])
    assert regression.prefill_terms(first)[:, 2].tolist() == [100 * 50, 100 * 57]


def test_timings_without_every_kind_of_shape_still_fit() -> None:
    """One image size, one prompt length: whatever cannot be told is settled, and the sums hold."""
    rows = timed(CPU, cv=0.05)
    few = rows[~rows.stage.isin(["encoder", "prefill"]) | (rows.tokens == 64) & (rows.images == 1) | (rows.chunk == 16)]
    fitted = totals.fit(few)
    assert np.isfinite(list(fitted.values())).all() and min(fitted.values()) >= 0
    sums = regression.bias(few, regression.predict(fitted, few))
    assert sums == pytest.approx(dict.fromkeys(few.stage.unique(), 0), abs=0.05)
    assert all(error < 12 for error in mean_errors(fit_parts(few).tested).values())


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(timed(CPU, cv=0.03), tmp_path_factory.mktemp("fit") / "small.csv")


def test_the_command_writes_a_profile_that_prices(csv: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "one.json", tmp_path / "two.json"]
    results = [CliRunner().invoke(cli.app, ["fit", str(csv), "--out", str(out)]) for out in outs]
    assert [result.exit_code for result in results] == [0, 0], results[0].output
    assert "small on a laptop: measured on a laptop" in results[0].output and str(outs[0]) in results[0].output
    assert outs[0].read_bytes() == outs[1].read_bytes()
    profile = load_profile(outs[0])
    assert profile.corrections.host.value == 0.25
    assert profile.coefficients.P1.value == 0.0 and "gemm" in profile.coefficients.P1.source
    assert "whole times of iterations" in profile.held_out.method
    assert all(0 < error < 8 for error in profile.held_out.mape.model_dump().values())
    assert all(abs(error) <= 0.01 for error in profile.held_out.bias.model_dump().values())
    model, rows = CostModel.from_profile(profile), read_rows(csv)
    for row in rows[rows.stage == "mixed"].itertuples():
        elapsed = model.compute([(row.chunk, row.cached)], row.decodes, row.decodes * row.context)
        assert elapsed / 1e6 == pytest.approx(row.total_ms, rel=0.15)


def test_a_profile_lies_beside_its_timings_unless_said_otherwise(csv: Path) -> None:
    result = CliRunner().invoke(cli.app, ["fit", str(csv)])
    assert result.exit_code == 0 and json.loads(csv.with_suffix(".json").read_text())["model"] == "small"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\nmixed,", "\nprefill,", "no timings of mixed"),
        ("\nmixed,", "\nmixt,", "no timings of mixed"),
        ("\nmixed,0,0,32,0,", "\nwarm,0,0,32,0,", "no stage is called warm"),
        ("\ndecode,0,0,0,0,0,1,32,", "\ndecode,0,0,0,0,0,1,-32,", "are not negative"),
        ("total_ms", "ms", "total_ms"),
        ("# device:", "# devise:", "device: Field required"),
        ("stage,images", "stage,gemm_ms,images", "attention_ms"),
    ],
)
def test_bad_timings_are_named_in_one_line(csv: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "bad.csv"
    text = csv.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=words) as caught:
        make_profile(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_no_time_is_no_number_and_no_folder_is_no_place(csv: Path, tmp_path: Path) -> None:
    rows = timed(CPU)
    rows.loc[3, "total_ms"] = np.inf
    result = CliRunner().invoke(cli.app, ["fit", str(write(rows, tmp_path / "bad.csv"))])
    assert result.exit_code == 2 and "total_ms must be greater than 0" in result.output
    result = CliRunner().invoke(cli.app, ["fit", str(tmp_path / "gone.csv")])
    assert result.exit_code == 2 and "is no file of timings" in result.output
    result = CliRunner().invoke(cli.app, ["fit", str(csv), "--out", str(csv / "p.json")])
    assert result.exit_code == 2 and "cannot be written" in result.output


def test_without_scipy_it_says_what_to_install(csv: Path) -> None:
    """The simulator is installed without it."""
    code = f"import sys; sys.modules['scipy'] = None; sys.argv = ['tandem', 'fit', {str(csv)!r}]; import cli; cli.app()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert result.returncode == 2 and result.stderr == f"error: {NEEDS_SCIPY}\n"


def test_a_profile_never_takes_the_timings_place(tmp_path: Path) -> None:
    timings = tmp_path / "timings.json"
    timings.write_text("stage\n")
    for file, words in ((timings, "take the timings' place"), (tmp_path, "is no file of timings")):
        result = CliRunner().invoke(cli.app, ["fit", str(file)])
        assert result.exit_code == 2 and words in result.stderr
    assert timings.read_text() == "stage\n"
