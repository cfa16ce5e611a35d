"""Published tables as a source: what can be asked for, what its rows are, and shipped profiles made from them again."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cli
from sim import silicon
from sim.fit import make_profile, write_profile
from sim.fit_trial import Trial
from sim.profiles import load_profile
from sim.shipped import SHIPPED, path_of
from sim.silicon import NEEDS_PACKAGE, Silicon
from sim.timings import COUNTS
from workloads.errors import InputError

needs_package = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="needs the extra 'profiles'")
ONE = Silicon("h100_sxm", "sglang", "qwen2-vl-7b", 1)


def test_a_source_says_it_all() -> None:
    one = Silicon.parse("aiconfigurator:h200_sxm/vllm/qwen2.5-vl-7b-tp4")
    assert one == Silicon("h200_sxm", "vllm", "qwen2.5-vl-7b", 4) and Silicon.parse(one.source) == one
    assert one.name == "h200/qwen2.5-vl-7b-vllm-tp4"
    assert all(Silicon.parse(shipped.source) == shipped for shipped in SHIPPED)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("h20/sglang/qwen3-vl-8b", "no system 'h20'; nearest: h200_sxm"),
        ("h200_sxm/sglan/qwen3-vl-8b", "no backend 'sglan'; nearest: sglang"),
        ("h200_sxm/sglang/qwen3-vl-9b", "no model 'qwen3-vl-9b'; nearest: qwen3-vl-8b"),
        ("h200_sxm/sglang/qwen2-vl-7b-tp3", "3 ranks cannot share 28 heads and the encoder's 16"),
        ("h200_sxm/sglang/qwen2-vl-7b-tp0", "no model 'qwen2-vl-7b-tp0'"),
        ("h200_sxm", "is not aiconfigurator:<system>/<backend>/<model>"),
        ("", "is not aiconfigurator:<system>/<backend>/<model>"),
    ],
)
def test_what_there_is_not_is_named_in_one_line(source: str, words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["fit", f"aiconfigurator:{source}", "--out", str(tmp_path / "p.json")])
    assert result.exit_code == 2 and result.stderr.startswith(f"error: aiconfigurator:{source}: {words}")
    assert result.stderr.count("\n") == 1 and not (tmp_path / "p.json").exists()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon, "PACKAGE", "no-such-package")
    with pytest.raises(
        InputError, match=r"^the published tables need aiconfigurator-core==0\.12\.0: pip install"
    ) as caught:
        make_profile(ONE.source)
    assert str(caught.value) == NEEDS_PACKAGE


def test_of_another_version_tables_may_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon, "PACKAGE", "numpy")
    with pytest.raises(InputError, match="is installed, whose tables may be others"):
        make_profile(ONE.source)


@needs_package
def test_a_table_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise KeyError("no rows\nfor this shape")

    monkeypatch.setattr("sim.silicon_rows.silicon_rows", missing)
    with pytest.raises(InputError, match=rf"^{ONE.source}: aiconfigurator-core has no such table: [^\n]*$"):
        make_profile(ONE.source)


@needs_package
def test_rows_are_parts_that_add_up() -> None:
    rows = ONE.rows()
    parts = rows.gemm_ms + rows.prefill_attention_ms + rows.decode_attention_ms
    language = rows.stage != "encoder"
    assert rows.total_ms[language].to_numpy() == pytest.approx(parts[language].to_numpy())
    assert set(rows.stage) == {"encoder", "prefill", "decode", "mixed"} and (rows.total_ms > 0).all()
    assert not rows.duplicated(subset=["stage", *COUNTS]).any()


@needs_package
@pytest.mark.parametrize(
    ("stage", "shape", "ms"),
    [
        ("encoder", {"images": 1, "tokens": 64}, 1.47823748),
        ("prefill", {"chunk": 512, "cached": 8192}, 18.1189567),
        ("decode", {"decodes": 4, "context": 1024}, 5.24036245),
    ],
)
def test_rows_are_those_of_the_tables(stage: str, shape: dict[str, int], ms: float) -> None:
    """Qwen3-VL-8B on the H200, as its own model in aiconfigurator gives them."""
    rows = Silicon("h200_sxm", "sglang", "qwen3-vl-8b", 1).rows()
    found = rows[(rows.stage == stage) & (rows[list(shape)] == list(shape.values())).all(axis=1)]
    assert found.total_ms.tolist() == pytest.approx([ms])


@needs_package
def test_windows_cost_less_than_whole_images() -> None:
    """Qwen2.5-VL's encoder in the place of Qwen2-VL's: the same widths, but for a narrower, gated MLP."""
    whole, windowed = (Silicon("h200_sxm", "sglang", f"qwen{v}-vl-7b", 1).rows() for v in ("2", "2.5"))
    encoder = whole.stage == "encoder"
    ratio = windowed.total_ms[encoder] / whole.total_ms[encoder]
    assert ratio[whole.tokens == 64].between(0.9, 1.1).all() and ratio[whole.tokens == 16384].between(0.2, 0.6).all()
    assert windowed.total_ms[~encoder].to_numpy() == pytest.approx(whole.total_ms[~encoder].to_numpy())


@needs_package
def test_ranks_make_it_faster() -> None:
    times = [
        Silicon("h200_sxm", "sglang", "qwen3-vl-8b", ranks).rows().groupby("stage").total_ms.sum()
        for ranks in (1, 2, 4)
    ]
    assert (times[0] > 1.3 * times[1]).all() and (times[1] > 1.3 * times[2]).all()


@needs_package
@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.name)
def test_shipped_coefficients_and_tables_come_out_again(shipped: Silicon) -> None:
    """Linear algebra may differ in the last digits from machine to machine."""
    profile, trial = load_profile(shipped.name), Trial(shipped.rows())
    found = {name: figure.value for name, figure in profile.coefficients}
    assert trial.coefficients == pytest.approx(found, rel=2e-4, abs=1e-9)
    for part in ("encode", "gemm"):
        if table := getattr(profile.tables, part):
            assert getattr(trial.tables, part).scaled(1.0) == table


@needs_package
def test_a_shipped_profile_comes_out_again_whole(tmp_path: Path) -> None:
    write_profile(make_profile(ONE.source), tmp_path / "fresh.json")
    fresh, shipped = (json.loads(path.read_text()) for path in (tmp_path / "fresh.json", path_of(ONE)))
    assert _plain(fresh) == pytest.approx(_plain(shipped), rel=1e-3, abs=0.011)
    for content in (fresh, shipped):
        del content["source"]["queried"]
    assert _words(fresh) == _words(shipped)


def _plain(node: Any, place: str = "") -> dict[str, float]:
    """Every number of a profile by where it stands."""
    if isinstance(node, (dict, list)):
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        return {key: value for name, child in pairs for key, value in _plain(child, f"{place}.{name}").items()}
    return {place: node} if isinstance(node, (int, float)) else {}


def _words(node: Any) -> Any:
    """A profile without its numbers."""
    if isinstance(node, dict):
        return {name: _words(child) for name, child in node.items()}
    if isinstance(node, list):
        return [_words(child) for child in node]
    return node if isinstance(node, str) else None
