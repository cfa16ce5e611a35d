"""Profiles: what is shipped is what its timings give, predicts what was withheld, and bad files are named."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim import regression
from sim.cost_model import CostModel
from sim.fit import main, make_profile, write_profile
from sim.profiles import REPOSITORY, load_profile
from workloads.errors import InputError

FOLDER = REPOSITORY / "scenarios" / "profiles" / "h200"
SHIPPED = ("qwen3-vl-8b", "qwen2-vl-7b")


def edited(tmp_path: Path, **changes: Any) -> Path:
    content = json.loads((FOLDER / "qwen3-vl-8b.json").read_text()) | changes
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    return path


def edited_csv(tmp_path: Path, old: str, new: str) -> Path:
    text = (FOLDER / "qwen3-vl-8b.csv").read_text()
    assert old in text
    path = tmp_path / "edited.csv"
    path.write_text(text.replace(old, new))
    return path


def values(stated: dict[str, Any]) -> dict[str, float]:
    """Taken out of it."""
    return {name: figure.pop("value") for name, figure in stated.items()}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_is_a_fresh_fit_of_its_csv(name: str, tmp_path: Path) -> None:
    """Linear algebra may differ in the last digits from machine to machine; all that is not fitted is equal."""
    write_profile(make_profile(FOLDER / f"{name}.csv"), tmp_path / "fresh.json")
    fresh = json.loads((tmp_path / "fresh.json").read_text())
    shipped = json.loads((FOLDER / f"{name}.json").read_text())
    assert values(fresh["coefficients"]) == pytest.approx(values(shipped["coefficients"]), rel=2e-5)
    for stage, spread in fresh["spread"].items():
        assert values(spread) == pytest.approx(values(shipped["spread"][stage]), abs=1.1e-4)
    for figures in ("mape", "bias"):
        assert fresh["held_out"].pop(figures) == pytest.approx(shipped["held_out"].pop(figures), abs=0.011)
    assert fresh == shipped


def test_fitting_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = [tmp_path / "one.json", tmp_path / "two.json"]
    for out in outs:
        monkeypatch.setattr("sys.argv", ["fit", str(FOLDER / "qwen2-vl-7b.csv"), "--out", str(out)])
        main()
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "encoder", "prefill", "decode", "mixed"),
    [("qwen3-vl-8b", 2.7, 4.3, 4.2, 3.2), ("qwen2-vl-7b", 2.7, 4.3, 4.2, 3.0)],
)
def test_held_out_errors(name: str, encoder: float, prefill: float, decode: float, mixed: float) -> None:
    held_out = load_profile(f"h200/{name}").held_out
    assert 1.0 < held_out.mape.encoder <= encoder
    assert 1.0 < held_out.mape.prefill <= prefill
    assert 1.0 < held_out.mape.decode <= decode
    assert 1.0 < held_out.mape.mixed <= mixed
    assert all(abs(percent) < 1.5 for percent in held_out.bias.model_dump().values())


@pytest.mark.parametrize("name", SHIPPED)
def test_the_cost_model_is_what_was_fitted(name: str) -> None:
    """Two writings of one formula, over arrays for the fit and over integers for the simulator."""
    profile = load_profile(f"h200/{name}")
    model = CostModel.from_profile(profile, corrected=False)
    rows = pd.read_csv(FOLDER / f"{name}.csv", comment="#")
    rows = rows[rows.stage != "mixed"]
    fitted = {key: getattr(profile.coefficients, key).value for key in type(profile.coefficients).model_fields}
    for row, ms in zip(rows.itertuples(), regression.predict(fitted, rows), strict=True):
        chunks = [(row.chunk, row.cached)] if row.chunk else []
        elapsed = model.encode(row.images * row.tokens, row.images * row.tokens**2)
        elapsed += model.compute(chunks, row.decodes, row.decodes * row.context)
        assert elapsed == pytest.approx(ms * 1e6, abs=1)


def test_found_by_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profile = load_profile("h200/qwen3-vl-8b")
    assert (profile.model, profile.source.backend) == ("qwen3-vl-8b", "sglang")
    assert profile == load_profile("h200/qwen3-vl-8b-sglang-tp1") == load_profile(FOLDER / "qwen3-vl-8b.json")
    assert profile == load_profile("scenarios/profiles/h200/qwen3-vl-8b.json")
    assert profile.digest == hashlib.sha256((FOLDER / "qwen3-vl-8b.json").read_bytes()).hexdigest()


def test_every_figure_has_a_unit_and_a_source() -> None:
    def visit(node: Any) -> int:
        if isinstance(node, dict) and "value" in node:
            assert node["unit"] and node["source"]
            return 1
        return sum(visit(child) for child in node.values()) if isinstance(node, dict) else 0

    for name in SHIPPED:
        assert visit(json.loads((FOLDER / f"{name}.json").read_text())) == 13 + 3 + 7 + 8 + 1


def test_missing_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no profile 'h200/qwen3-vl-9b'; nearest: h200/qwen3-vl-8b"):
        load_profile("h200/qwen3-vl-9b")
    with pytest.raises(InputError, match=rf"no profile '{REPOSITORY}/gone\.json': No such file"):
        load_profile("gone.json")
    with pytest.raises(InputError, match="there are none in"):
        load_profile("h200/qwen3-vl-8b", tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"color": "red"}, "color: Extra inputs are not permitted"),
        ({"coefficients": {"E0": {"value": -1, "unit": "ms", "source": "none"}}}, "coefficients.E0.value: "),
        ({"memory": {}}, "memory.weights: Field required"),
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


def test_fitting_nothing_ends_with_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fit", str(tmp_path / "gone.csv")])
    with pytest.raises(SystemExit, match="2"):
        main()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("prefill_attention_ms", "prefill_ms", "prefill_attention_ms"),
        ("\nmixed,", "\nprefill,", "no timings of mixed"),
        ("# device:", "# devise:", "device: Field required"),
        (",1.47823748,", ",0,", "total_ms must be greater than 0"),
        ("# device:", "# : [", "while parsing"),
        ("\ndecode,0,", "\ndecode,none,", "invalid literal|Unable to parse"),
    ],
)
def test_bad_timings_are_named_in_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = edited_csv(tmp_path, old, new)
    with pytest.raises(InputError, match=words) as caught:
        make_profile(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
