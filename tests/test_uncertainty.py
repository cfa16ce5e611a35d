"""Draws of what a profile leaves uncertain: from counters, the same on both paths, with the spread that it states."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fast_path import assert_paths_agree, scenario
from typer.testing import CliRunner

from cli import app
from sim import Scenario, run
from sim.blur import BLOCK, STAGES, Blur
from sim.ensemble import Draws, Member
from sim.figures import Spread
from sim.profiles import load_profile
from sim.resolve import resolve
from sim.verdicts import share_better, verdicts
from workloads.errors import InputError

TIGHT = "tests/data/scenario.yaml"
SMALL = {"workload.num_requests": 20}


def spread(bias: float, noise: float) -> Spread:
    stated = {
        name: {"value": value, "unit": "1", "source": "a test"} for name, value in (("bias", bias), ("noise", noise))
    }
    return Spread.model_validate(dict.fromkeys(STAGES, stated))


@given(st.integers(0, 5000), st.integers(1, 3000))
@settings(max_examples=30, deadline=None)
def test_many_iterations_are_drawn_as_each_of_them_is(first: int, size: int) -> None:
    totals = np.arange(5_000_000, 5_000_000 + size * 100, 100)
    host = 300_000
    many = Blur(spread(0.05, 0.1), 3, 1, 0, host).decodes(totals, first)
    for place in {0, size // 2, size - 1}:
        one = Blur(spread(0.05, 0.1), 3, 1, 0, host)
        assert many[place] == host + one.one(int(totals[place]) - host, "decode", first + place)


def test_the_draws_have_the_spread_that_is_stated() -> None:
    nominal = 10**7
    blurs = [Blur(spread(0.03, 0.2), number, 0, 0, 0) for number in range(400)]
    biases = np.array([blur.bias[stage] for blur in blurs for stage in STAGES])
    assert np.std(np.log(biases)) == pytest.approx(0.03, rel=0.1) and np.mean(np.log(biases)) == pytest.approx(
        0, abs=3e-3
    )
    noise = blurs[0].decodes(np.full(8 * BLOCK, nominal), 0) / nominal / blurs[0].bias["decode"]
    assert noise.mean() == pytest.approx(1, abs=0.01) and noise.std() == pytest.approx(0.2, rel=0.05)
    encode = np.array([blurs[0].one(nominal, "encode", iteration) for iteration in range(BLOCK)])
    assert abs(np.corrcoef(encode, noise[:BLOCK])[0, 1]) < 0.1


def test_no_spread_is_no_change() -> None:
    blur = Blur(spread(0, 0), 1, 1, 0, 5)
    assert blur.decodes(np.array([100, 200]), 7).tolist() == [100, 200] and blur.one(123, "mixed", 9) == 123


def test_draws_differ_by_number_seed_and_engine_and_their_biases_by_number_alone() -> None:
    kinds = [(1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 1, 1)]
    blurs = [Blur(spread(0.1, 0.1), *kind, host=0) for kind in kinds]
    assert len({blur.one(10**9, "decode", 0) for blur in blurs}) == 4
    assert len({blur.bias["decode"] for blur in blurs}) == 2


@pytest.mark.parametrize("policy", ["fcfs", "vllm", "sglang", "hf_rows"])
@pytest.mark.parametrize("arrivals", ["at_once", "gamma"])
def test_paths_agree_under_every_draw(policy: str, arrivals: str) -> None:
    assert_paths_agree(scenario(policy, arrivals, simulation={"draw": 5}))


SIDE = {"engine": {"encoder_side_stream_max_ahead": 2}}
POOLS = {"pools": {"prefill": {"engines": 2}, "decode": {}, "link": {"gigabytes_per_second": 50}}}


@pytest.mark.parametrize("parts", [SIDE, POOLS], ids=["side stream", "pools"])
def test_paths_agree_with_several_streams_too(parts: dict[str, Any]) -> None:
    r = assert_paths_agree(scenario("fcfs", "at_once", simulation={"draw": 5}, **parts))
    certain = run(scenario("fcfs", "at_once", **parts))
    assert r.summary["mean_ttft_ms"] != certain.summary["mean_ttft_ms"]


def test_a_draw_is_a_scenario_that_runs_again(tmp_path: Path) -> None:
    options = ["--no-plots", "--uncertainty", "3", "--set", "workload.num_requests=20"]
    result = CliRunner().invoke(app, ["run", TIGHT, *options, "--out", str(tmp_path / "a")], catch_exceptions=False)
    assert result.exit_code == 0 and "means of 3 draws" in result.output and " to " in result.output
    again = ["run", str(tmp_path / "a" / "seed-2" / "scenario.yaml"), "--no-plots", "--out", str(tmp_path / "b")]
    assert CliRunner().invoke(app, again).exit_code == 0
    for name in ("requests.parquet", "iterations.parquet", "summary.json"):
        assert (tmp_path / "a" / "seed-2" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    table = pd.read_parquet(tmp_path / "a" / "replications.parquet")
    assert summary["uncertainty"]["number"] == 3
    assert summary["uncertainty"]["low"]["p99_ttft_ms"] == pytest.approx(np.percentile(table["p99_ttft_ms"], 2.5))


def test_all_variants_have_the_same_draws() -> None:
    """Alike where nothing depends on what differs: two policies on text decide the same."""
    text = SMALL | {"workload.images": None}
    one, other = (run(TIGHT, text | {"policy.kind": kind}, uncertainty=4) for kind in ("fcfs", "footprint"))
    assert one.summary == other.summary
    assert one.summary["mean_ttft_ms"] != run(TIGHT, text | {"policy.kind": "fcfs"}).summary["mean_ttft_ms"]


def test_the_verdict_counts_draws() -> None:
    def ensemble(*values: float) -> Draws:
        members = [Member(seed, "finished", 0, {"p99_ttft_ms": value}, {}, None) for seed, value in enumerate(values)]
        return Draws(members, len(members))

    ours, theirs = ensemble(1, 2, 3, 9), ensemble(2, 2, 4, 8)
    assert share_better(ours, theirs, "p99_ttft_ms", less=True) == 0.5
    assert share_better(ours, theirs, "p99_ttft_ms", less=False) == 0.25


def test_the_verdict_is_said_of_variants() -> None:
    runs = [(kind, run(TIGHT, SMALL | {"policy.kind": kind}, uncertainty=5)) for kind in ("unbudgeted", "footprint")]
    (line,) = verdicts(runs)
    assert line.startswith("footprint beats unbudgeted on TTFT p99 in ") and line.endswith(" % of 5 draws")
    assert verdicts(runs[:1]) == [] and verdicts([*runs, ("alone", run(TIGHT, SMALL))]) == []


def test_a_profile_without_spread_has_nothing_to_draw(tmp_path: Path) -> None:
    bare = load_profile("h200/qwen3-vl-8b").model_copy(update={"spread": None})
    (tmp_path / "bare.json").write_text(bare.model_dump_json(exclude_none=True))
    changes = SMALL | {"profile": str(tmp_path / "bare.json")}
    with pytest.raises(InputError, match=r"bare.json states no spread to draw from; fit it again"):
        run(TIGHT, changes, uncertainty=2)
    with pytest.raises(InputError, match="states no spread"):
        resolve(Scenario.load(TIGHT, changes | {"simulation.draw": 0}))
    options = ["--set", f"profile={tmp_path / 'bare.json'}", "--uncertainty", "3", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["run", TIGHT, *options])
    assert result.exit_code == 2 and result.stderr.startswith(f"error: {TIGHT}: --uncertainty: profile ")
    assert not (tmp_path / "out").exists()
