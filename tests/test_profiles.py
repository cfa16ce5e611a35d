"""Profiles: found by name, every figure with its source, held-out errors within their bars, bad files named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sim import regression
from sim.cost_model import CostModel
from sim.fit import make_profile, write_profile
from sim.profiles import PROFILES, load_profile
from sim.timings import read_rows
from workloads.errors import InputError

NAMES = sorted(path.relative_to(PROFILES).with_suffix("").as_posix() for path in PROFILES.glob("*/*.json"))
PUBLISHED = [name for name in NAMES if not name.startswith("cpu/")]
CALIBRATED = [name for name in NAMES if name.startswith("cpu/")]
ONE = PROFILES / "h200" / "qwen3-vl-8b-sglang-tp1.json"
BARS = {"encoder": 3.0, "prefill": 4.0, "decode": 4.0, "mixed": 3.5}  # percent


def edited(tmp_path: Path, **changes: Any) -> Path:
    content = json.loads(ONE.read_text()) | changes
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    return path


def edited_csv(tmp_path: Path, old: str, new: str) -> Path:
    text = (PROFILES / "cpu" / "tiny.csv").read_text()
    assert old in text
    path = tmp_path / "edited.csv"
    path.write_text(text.replace(old, new))
    return path


def values(stated: dict[str, Any]) -> dict[str, float]:
    """Taken out of it."""
    return {name: figure.pop("value") for name, figure in stated.items()}


def test_what_is_shipped() -> None:
    """Every device with every model; the larger ones over 2 and 4 GPUs too; another engine's kernels on one device."""
    models = ("qwen2-vl-2b", "qwen2-vl-7b", "qwen3-vl-8b")
    one = {f"{device}/{model}-sglang-tp1" for device in ("h200", "h100", "b200", "l40s") for model in models}
    several = {f"h200/{model}-sglang-tp{ranks}" for model in models[1:] for ranks in (2, 4)}
    assert set(PUBLISHED) == one | several | {f"h200/{model}-vllm-tp1" for model in models}


@pytest.mark.parametrize("name", PUBLISHED)
def test_held_out_errors_are_within_their_bars(name: str) -> None:
    held_out = load_profile(name).held_out
    for stage, bar in BARS.items():
        assert 0.3 < getattr(held_out.mape, stage) <= bar
    assert all(abs(getattr(held_out.bias, stage)) <= 0.3 for stage in ("encoder", "prefill", "decode"))
    assert abs(held_out.bias.mixed) < 3.5


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_part_has_the_form_with_the_smaller_error(name: str) -> None:
    profile = load_profile(name)
    for part in ("encode", "gemm"):
        errors = getattr(profile.held_out, part)
        assert (getattr(profile.tables, part) is not None) == (errors.table < errors.formula), part


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibrated_profile_is_a_fresh_fit_of_its_csv(name: str, tmp_path: Path) -> None:
    """Linear algebra may differ in the last digits from machine to machine; all that is not fitted is equal."""
    write_profile(make_profile(PROFILES / f"{name}.csv"), tmp_path / "fresh.json")
    fresh = json.loads((tmp_path / "fresh.json").read_text())
    shipped = json.loads((PROFILES / f"{name}.json").read_text())
    assert values(fresh["coefficients"]) == pytest.approx(values(shipped["coefficients"]), rel=2e-5)
    for stage, spread in fresh["spread"].items():
        assert values(spread) == pytest.approx(values(shipped["spread"][stage]), abs=1.1e-4)
    for figures in ("mape", "bias", "encode"):
        assert fresh["held_out"].pop(figures) == pytest.approx(shipped["held_out"].pop(figures), abs=0.011)
    assert fresh == shipped


@pytest.mark.parametrize("name", NAMES)
def test_the_cost_model_is_what_was_fitted(name: str) -> None:
    """Two writings of formula and tables, over arrays for the fit and over integers for the simulator."""
    profile = load_profile(name)
    model = CostModel.from_profile(profile, corrected=False)
    rows = read_rows(PROFILES / "cpu" / "small.csv")
    larger = rows.assign(
        images=7 * rows.images, tokens=9 * rows.tokens, chunk=11 * rows.chunk, decodes=5 * rows.decodes
    )
    fitted = {key: figure.value for key, figure in profile.coefficients}
    for part in (rows, larger):
        part = part[part.stage != "mixed"]
        for row, ms in zip(part.itertuples(), regression.predict(fitted, part, profile.tables), strict=True):
            chunks = [(row.chunk, row.cached)] if row.chunk else []
            elapsed = model.encode(row.images * row.tokens, row.images * row.tokens**2)
            elapsed += model.compute(chunks, row.decodes, row.decodes * row.context)
            assert elapsed == pytest.approx(ms * 1e6, abs=1, rel=1e-9)


def test_found_by_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profile = load_profile("h200/qwen3-vl-8b")
    assert (profile.model, profile.source.backend, profile.source.gpus) == ("qwen3-vl-8b", "sglang", 1)
    assert profile == load_profile("h200/qwen3-vl-8b-sglang-tp1") == load_profile(ONE)
    assert profile == load_profile("scenarios/profiles/h200/qwen3-vl-8b-sglang-tp1.json")
    assert profile.digest == hashlib.sha256(ONE.read_bytes()).hexdigest()
    assert load_profile("h200/qwen3-vl-8b-vllm-tp1").source.backend == "vllm"


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_unit_and_a_source(name: str) -> None:
    def visit(node: Any) -> int:
        if isinstance(node, dict) and "value" in node:
            assert node["unit"] and node["source"]
            return 1
        return sum(visit(child) for child in node.values()) if isinstance(node, dict) else 0

    peaks = 9 if name in PUBLISHED else 0
    assert visit(json.loads((PROFILES / f"{name}.json").read_text())) == 13 + 3 + 7 + 8 + 1 + peaks


def test_missing_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no profile 'h200/qwen3-vl-9b'; nearest: h200/qwen3-vl-8b"):
        load_profile("h200/qwen3-vl-9b")
    with pytest.raises(InputError, match=r"no profile '[^']*/gone\.json': No such file"):
        load_profile("gone.json")
    with pytest.raises(InputError, match="there are none in"):
        load_profile("h200/qwen3-vl-8b", tmp_path)


TABLE = {"tokens": [1, 2], "ms": [1.0, 2.0], "source": "none"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"color": "red"}, "color: Extra inputs are not permitted"),
        ({"coefficients": {"E0": {"value": -1, "unit": "ms", "source": "none"}}}, "coefficients.E0.value: "),
        ({"memory": {}}, "memory.weights: Field required"),
        ({"tables": {"gemm": TABLE | {"ms": [2.0, 1.0]}}}, "tables.gemm: Value error, ms must not fall"),
        ({"tables": {"gemm": TABLE | {"tokens": [2, 2]}}}, "tables.gemm: Value error, tokens must rise"),
        ({"tables": {"gemm": TABLE | {"ms": [1.0]}}}, "tables.gemm: Value error, ms has 1 times for 2 shapes"),
        ({"tables": {"encode": TABLE}}, "tables.encode.images: Field required"),
        (
            {"tables": {"encode": TABLE | {"images": [1, 2], "ms": [[1.0, 2.0], [0.5, 2.0]]}}},
            "tables.encode: Value error, ms must not fall",
        ),
    ],
)
def test_bad_profiles_are_named_in_one_line(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = edited(tmp_path, **change)
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert str(caught.value).startswith(f"{path}: {words}") and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b'{"device": ', b"", b"\xff\xfe", b"[]"])
def test_corrupt_profiles_are_named_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "corrupt.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("total_ms", "time_ms", "total_ms"),
        ("\nmixed,", "\nprefill,", "no timings of mixed"),
        ("# device:", "# devise:", "device: Field required"),
        ("# device:", "# : [", "while parsing"),
        ("\ndecode,0,", "\ndecode,none,", "invalid literal|Unable to parse"),
    ],
)
def test_bad_timings_are_named_in_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = edited_csv(tmp_path, old, new)
    with pytest.raises(InputError, match=words) as caught:
        make_profile(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
