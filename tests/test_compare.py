"""`tandem compare` on whole folders: what it prints and writes, its exit codes, and every folder that is wrong."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from noisy_runs import small, write_live, write_simulated
from typer.testing import CliRunner

import cli
from sim.compare import compare
from sim.published_table import number
from sim.ranks import kendall_tau
from sim.recorded import read_live, read_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("runs")
    write_simulated(small(), base / "run")
    write_live(small(), base / "live", scale=1.1)
    write_live(small(), base / "model", clock="model")
    write_live(small(), base / "interrupted", stop_at=30)
    write_simulated(small("fcfs"), base / "fcfs")
    for policy, scale in (("fcfs", 1.0), ("eager", 1.5), ("footprint", 1.2)):
        write_simulated(small(policy), base / "runs" / policy)
        write_live(small(policy), base / "lives" / policy, scale=scale)
    return base


@pytest.fixture
def base(folders: Path, tmp_path: Path) -> Path:
    shutil.copytree(folders, tmp_path / "runs")
    return tmp_path / "runs"


def call(*words: Any) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["compare", *map(str, words)])
    return result.exit_code, result.output


def refused(*words: Any) -> str:
    code, output = call(*words)
    assert code == 2 and output.startswith("error: ") and output.count("\n") == 1, output
    return output


def test_a_noisy_run_has_an_identical_twin_and_errors(base: Path) -> None:
    code, output = call(base / "run", base / "live")
    assert code == 0
    assert output.startswith("twin: identical (")
    assert "simulated" in output and "measured" in output and "TTFT p99 (ms)" in output
    content = json.loads((base / "live" / "compare.json").read_text())
    assert content["identical"] and content["twin"]["identical"] and content["twin"]["difference"] is None
    stages = content["teacher_forced"]["stages"]
    assert {"encoder", "decode", "mixed", "host"} <= set(stages)
    for stage in ("decode", "host"):
        assert stages[stage]["error_percent"] == pytest.approx(100 * (1 / 1.1 - 1), abs=5)
        assert sum(shape["iterations"] for shape in stages[stage]["shapes"]) == stages[stage]["iterations"]
    figures = content["free_running"]["figures"]
    assert content["free_running"]["requests"] == 16
    for side, folder in (("simulated", "run"), ("measured", "live")):
        summary = json.loads((base / folder / "summary.json").read_text())
        assert {name: figure[side] for name, figure in figures.items()} == pytest.approx(
            {name: summary[name] for name in figures}
        )
    assert len(figures) == 4 * 5 + 1 and "p95_itl_ms" in figures
    figure = figures["mean_e2el_ms"]
    assert figure["error"] == pytest.approx(figure["simulated"] - figure["measured"])
    page = (base / "live" / "fidelity.md").read_text()
    assert f"| E2E mean (ms) | {number(figure['simulated'])} | {number(figure['measured'])} |" in page
    assert f"| decode | {stages['decode']['iterations']:,} |" in page
    assert figure["error_percent"] == pytest.approx(100 * (figure["simulated"] / figure["measured"] - 1))
    assert figure["interval_percent"][0] <= figure["error_percent"] <= figure["interval_percent"][1]
    assert sorted(path.name for path in (base / "live" / "plots").iterdir()) == [
        "compare_cdfs.png",
        "compare_parity.png",
    ]


def test_comparing_twice_gives_the_same_bytes(base: Path) -> None:
    files = [base / "live" / name for name in ("compare.json", "plots/compare_cdfs.png", "plots/compare_parity.png")]
    told = []
    for _ in range(2):
        call(base / "run", base / "live")
        told.append([path.read_bytes() for path in files])
    assert told[0] == told[1]


def test_the_models_clock_makes_all_identical(base: Path) -> None:
    code, output = call(base / "run", base / "model", "--no-plots")
    assert code == 0 and "free-running, both by the cost model's clock: identical" in output
    content = json.loads((base / "model" / "compare.json").read_text())
    assert content["free_running"]["exact"]["identical"]
    stages = content["teacher_forced"]["stages"]
    assert all(stage["error_percent"] == stage["mape_percent"] == 0 for stage in stages.values())
    assert not (base / "model" / "plots").exists()


def test_an_altered_plan_is_named_and_ends_with_1(base: Path) -> None:
    path = base / "live" / "plans.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    line = json.loads(lines[9])
    line["context_tokens"] += 1
    path.write_bytes(gzip.compress("\n".join([*lines[:9], json.dumps(line), *lines[10:]]).encode()))
    code, output = call(base / "run", base / "live")
    assert code == 1 and output.startswith("twin: differs at iteration 9: context_tokens: twin ")
    assert "no ITL" in output
    content = json.loads((base / "live" / "compare.json").read_text())
    assert not content["identical"] and content["twin"]["difference"].startswith("iteration 9: ")
    assert "mean_itl_ms" not in content["free_running"]["figures"]


def test_a_deterministic_run_that_differs_ends_with_1(base: Path) -> None:
    """The plans still price themselves, so only the simulation can tell that a time is not the model's."""
    shutil.rmtree(base / "model")
    write_live(small(), base / "model", clock="model", scale=1.01)
    code, output = call(base / "run", base / "model", "--no-plots")
    assert code == 1 and "twin: identical" in output
    assert "by the cost model's clock: differs at iteration 0: elapsed_ns: simulated (" in output


def test_an_interrupted_run_is_compared_as_far_as_it_went(base: Path) -> None:
    code, output = call(base / "run", base / "interrupted", "--no-plots")
    assert code == 0
    assert output.startswith("twin: identical (30 iterations, ") and "the live run ended early" in output
    assert "others left out" in output


def test_variants_are_compared_pairwise_and_ranked(base: Path) -> None:
    write_simulated(small("head_of_line"), base / "runs" / "extra")
    code, output = call(base / "runs", base / "lives")
    names = ["eager", "fcfs", "footprint"]
    assert code == 0 and output.count("twin: identical") == 3
    assert "ranks of eager, fcfs, footprint, simulated against measured" in output
    assert "in one of both folders only: extra" in output
    content = json.loads((base / "lives" / "compare.json").read_text())
    assert sorted(content["variants"]) == names and content["left_out"] == ["extra"]
    figures = [content["variants"][name]["free_running"]["figures"]["mean_e2el_ms"] for name in names]
    sides = ([figure[side] for figure in figures] for side in ("simulated", "measured"))
    assert content["kendall_tau"]["mean_e2el_ms"] == kendall_tau(*sides)
    plots = {path.name for path in (base / "lives" / "plots").iterdir()}
    assert plots == {f"compare_{what}-{name}.png" for what in ("cdfs", "parity") for name in names}


def test_two_variants_have_no_rank(base: Path) -> None:
    shutil.rmtree(base / "lives" / "footprint")
    code, output = call(base / "runs", base / "lives", "--no-plots")
    assert code == 0 and "ranks of" not in output
    assert "in one of both folders only: footprint" in output


def test_another_profile_prices_the_plans(base: Path) -> None:
    assert call(base / "run", base / "live", "--profile", "h200/qwen2-vl-7b", "--no-plots")[0] == 0
    other = json.loads((base / "live" / "compare.json").read_text())["teacher_forced"]
    assert other["profile"]["name"] == "h200/qwen2-vl-7b"
    call(base / "run", base / "live", "--no-plots")
    own = json.loads((base / "live" / "compare.json").read_text())["teacher_forced"]
    assert own["stages"]["decode"]["predicted_ms"] != other["stages"]["decode"]["predicted_ms"]
    assert own["stages"]["decode"]["measured_ms"] == other["stages"]["decode"]["measured_ms"]


def test_what_a_live_run_measures_may_differ_and_is_said(base: Path) -> None:
    write_simulated(small(engine={"num_kv_blocks": 140}), base / "roomier")
    code, output = call(base / "roomier", base / "live", "--no-plots")
    assert code == 0 and "engine.num_kv_blocks: 140 simulated, 130 live" in output
    assert "another scenario: engine.num_kv_blocks is 140" in refused(base / "roomier", base / "model")


def test_another_scenario_is_refused_with_what_differs(base: Path) -> None:
    output = refused(base / "fcfs", base / "live")
    assert f"{base / 'live'}: another scenario: policy.kind is fcfs in {base / 'fcfs'}, head_of_line live" in output
    write_simulated(small(seed=2), base / "seeded")
    assert "another scenario: seed is 2 in" in refused(base / "seeded", base / "live")


def test_folders_that_are_not_what_they_should_be(base: Path) -> None:
    assert "is no folder" in refused(base / "gone", base / "live")
    assert "is no folder" in refused(base / "run", base / "gone")
    assert "the first folder is a simulated one" in refused(base / "live", base / "live")
    (base / "empty").mkdir()
    shutil.copytree(base / "lives", base / "half")
    (base / "half" / "fcfs" / "live.json").unlink()
    assert "holds no run: it has no run.json" in refused(base / "run", base / "empty")
    assert "no variant is in both, or only one of them has variants" in refused(base / "run", base / "lives")
    assert "no profile 'h200/qwen9'" in refused(base / "run", base / "live", "--profile", "h200/qwen9")
    assert "--profile: prices the plans of a live run" in refused(base / "run", base / "fcfs", "--profile", "a/b")
    assert "some of its variants are live runs, others are not" in refused(base / "runs", base / "half")
    (base / "run" / "iterations.parquet").unlink()
    assert "iterations.parquet: is missing" in refused(base / "run", base / "live")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("live.json", b"{", "live.json: is not JSON"),
        ("live.json", b"[]", "live.json: is not a mapping"),
        ("live.json", b"{}", "live.json: clock is missing"),
        ("run.json", b"\xff", "run.json: is not JSON"),
        ("run.json", b'{"name": "small"}', "run.json: verdict is missing"),
        ("scenario.yaml", b"name: [", "scenario.yaml: not YAML"),
        ("requests.parquet", b"PAR1", "requests.parquet: is not a whole Parquet file"),
        ("iterations.parquet", b"", "iterations.parquet: is not a whole Parquet file"),
        ("plans.jsonl.gz", b"\x1f\x8b", "plans.jsonl.gz: is not a whole gzip file"),
        ("plans.jsonl.gz", gzip.compress(b"{", mtime=0), "plans.jsonl.gz: line 1: Invalid JSON"),
        ("plans.jsonl.gz", gzip.compress(b"", mtime=0), "plans.jsonl.gz has 0 iterations, the tables"),
    ],
)
def test_broken_files_are_named(file: str, content: bytes, words: str, base: Path) -> None:
    (base / "live" / file).write_bytes(content)
    assert words in refused(base / "run", base / "live")
    assert not (base / "live" / "compare.json").exists()


def test_tables_that_do_not_belong_together_are_refused(base: Path) -> None:
    live = base / "live"
    pd.read_parquet(live / "iterations.parquet")[:-1].to_parquet(live / "iterations.parquet", index=False)
    assert "iterations.parquet is not of the run that run.json is of" in refused(base / "run", live)
    shutil.copy(base / "live" / "iterations.parquet", base / "run" / "requests.parquet")
    assert "requests.parquet: is no such table of a run: column request_id" in refused(base / "run", base / "model")


def test_a_simulated_folder_that_no_longer_simulates_so_is_refused(base: Path) -> None:
    path = base / "run" / "requests.parquet"
    table = pd.read_parquet(path)
    table.loc[3, "num_encodes"] += 1
    table.to_parquet(path, index=False)
    assert "is not what its scenario simulates to" in refused(base / "run", base / "live")
    write_live(small(), base / "interrupted", stop_at=10)
    for name in ("live.json", "plans.jsonl.gz"):
        (base / "interrupted" / name).unlink()
    assert "was interrupted; simulate it to its end first" in refused(base / "interrupted", base / "live")


def test_a_changed_profile_is_no_clock_any_more(base: Path) -> None:
    path = base / "model" / "run.json"
    content = json.loads(path.read_text())
    content["profile"]["digest"] = "0" * 64
    path.write_text(json.dumps(content))
    assert "has changed since it told the time" in refused(base / "run", base / "model")


def test_another_run_in_the_folder_removes_what_was_compared(base: Path) -> None:
    call(base / "run", base / "live")
    write_live(small(), base / "live")
    assert not (base / "live" / "compare.json").exists() and not (base / "live" / "plots").exists()


def test_the_fast_path_changes_nothing(base: Path) -> None:
    slow = small(simulation={"fast_path": False})
    write_simulated(slow, base / "slow")
    told = [compare(read_run(base / name), read_live(base / "model", {})) for name in ("run", "slow")]
    assert all(comparison.identical and not comparison.notes for comparison in told)
