"""`tandem price`: what one iteration costs, its parts, its floor, and what lies outside the range."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import cli
from sim.cost_model import CostModel
from sim.price import Shape, price
from sim.profiles import PROFILES, load_profile

PROFILE = "h200/qwen3-vl-8b"


def tandem(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["price", *arguments])


def priced(*arguments: str) -> dict[str, Any]:
    result = tandem(*arguments, "--json")
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


# An SGLang server's log, Qwen3-VL-8B on one H200. A regression check and no validation: the profile's corrections come
# from the same log.
LOG = [("--encode", "4x3520", 49.6), ("--encode", "8x3520", 90.4), ("--encode", "4x8160", 145.3)]
LOG += [("--decode", "64@11000", 30.5), ("--decode", "1@5000", 5.47)]


@pytest.mark.parametrize(("option", "shape", "ms"), LOG)
def test_near_a_servers_log(option: str, shape: str, ms: float) -> None:
    content = priced(PROFILE, option, shape)
    assert content["total_ms"] == pytest.approx(ms, rel=0.1)
    assert option != "--encode" or content["encode_ms"] == pytest.approx(ms, rel=0.1)


SHAPES = st.builds(
    Shape,
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20_000)), max_size=3),
    st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 20_000)), max_size=3),
    st.integers(0, 300),
    st.integers(1, 50_000),
)


@given(
    st.sampled_from(["h200/qwen3-vl-8b", "l40s/qwen2-vl-2b", "h200/qwen2-vl-7b", "cpu/small"]), SHAPES, st.booleans()
)
def test_parts_are_those_of_the_simulator(name: str, shape: Shape, corrected: bool) -> None:
    profile = load_profile(name)
    cost, found = CostModel.from_profile(profile, corrected), price(profile, shape, corrected)
    compute = cost.compute(shape.chunks, shape.num_decodes, shape.num_decodes * shape.context)
    assert found.total == (cost.host + cost.encode(*shape.frames) + compute) / 1e6
    assert sum(found.parts.values()) == pytest.approx(found.total, abs=2e-6)
    assert found.floors is None or found.floor == sum(found.floors.values())


def test_json_has_every_part() -> None:
    content = priced(PROFILE, "--encode", "2x1024,4096", "--prefill", "2048@512,100", "--decode", "32@5000")
    assert content["shape"] == {
        "images": [[2, 1024], [1, 4096]],
        "chunks": [[2048, 512], [100, 0]],
        "num_decodes": 32,
        "context": 5000,
    }
    parts = ("host", "encode", "gemm", "prefill_attention", "decode_attention")
    assert [name for name in content if name.endswith("_ms")] == ["total_ms", *(f"{part}_ms" for part in parts)]
    assert content["total_ms"] == pytest.approx(sum(content[f"{part}_ms"] for part in parts), abs=2e-6)
    for part in parts[1:]:
        assert 0 < content["efficiency"][part] == content["floor"][part] / content[f"{part}_ms"] < 1
    assert content["floor"]["total"] == pytest.approx(sum(content["floor"][part] for part in parts[1:]))
    assert content["outside"] == []


def test_without_corrections_it_is_kernels_alone() -> None:
    full, alone = (
        priced(PROFILE, "--encode", "4x3520", "--decode", "1@5000", *more) for more in ((), ("--uncorrected",))
    )
    assert alone["host_ms"] == 0 and full["host_ms"] == 0.3
    assert full["encode_ms"] - alone["encode_ms"] == pytest.approx(9.0)
    assert full["gemm_ms"] == pytest.approx(1.05 * alone["gemm_ms"]) and (alone["corrected"], full["corrected"]) == (
        False,
        True,
    )


def test_outside_the_range_is_said() -> None:
    content = priced(PROFILE, "--prefill", "20000@40000")
    assert content["outside"] == [
        "tokens prefilled up to 20,000 (timed: 1 to 16,384)",
        "tokens cached before a chunk up to 40,000 (timed: 0 to 16,384)",
    ]
    assert (
        "outside the range of the timings: tokens prefilled up to 20,000"
        in tandem(PROFILE, "--prefill", "20000").stdout
    )


def test_the_table_has_a_line_for_each_part_that_runs() -> None:
    lines = tandem(PROFILE, "--decode", "64@11000").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[3:]] == ["host", "gemm", "decode attention", "total"]
    assert "30.5" not in lines[-1] and float(lines[-1].split()[1]) == pytest.approx(30.5, rel=0.1)


def test_a_profile_without_peaks_has_no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROFILES)
    content = priced("cpu/small.json", "--decode", "4@100")
    assert content["floor"] is None and content["efficiency"] is None and content["total_ms"] > 1
    assert "total" in tandem("cpu/small.json", "--decode", "4@100").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([PROFILE], "nothing to price: say --encode 4x4096"),
        ([PROFILE, "--encode", "4x"], "--encode: '4x' is not like 4x4096"),
        ([PROFILE, "--encode", "0x5"], "--encode: 0 is not from 1 to "),
        ([PROFILE, "--encode", "4x4096,"], "--encode: '' is not like 4x4096"),
        ([PROFILE, "--prefill", "-5"], "--prefill: '-5' is not like 8192@512"),
        ([PROFILE, "--prefill", "5@" + "9" * 5000], "--prefill: 999"),
        ([PROFILE, "--prefill", "٣"], "--prefill: '٣' is not like 8192@512"),
        ([PROFILE, "--decode", "5"], "--decode: '5' is not like 32@5000"),
        ([PROFILE, "--decode", "5@0"], "--decode: 0 is not from 1 to "),
        ([PROFILE, "--decode", "5@10,6@10"], "--decode: is given once"),
        (["h200/qwen3-vl-9b", "--decode", "5@10"], "no profile 'h200/qwen3-vl-9b'; nearest: h200/qwen3-vl-8b"),
        (["gone.json", "--decode", "5@10"], "no profile "),
    ],
    ids=str,
)
def test_bad_input_is_one_line(arguments: list[str], words: str) -> None:
    result = tandem(*arguments)
    assert result.exit_code == 2 and result.stderr.startswith(f"error: {words}") and result.stderr.count("\n") == 1
