"""The command `tandem replay`: what it writes, prints and returns, and that simulating goes without torch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from test_cli import FILES, names, tandem

from policies import POLICIES
from sim.plan_log import read_plans

torch.set_num_threads(1)
POLICY_NAMES = ",".join(policy.model_fields["kind"].default for policy in POLICIES)
LIVE_FILES = sorted([*FILES, "live.json", "plans.jsonl.gz", "tokens.parquet"])
SCENARIO = """
model: tiny
profile: h200/qwen2-vl-7b
workload:
  kind: synthetic
  num_requests: 12
  arrivals: {kind: poisson, rate: 60}
  text_tokens: {kind: uniform, min: 8, max: 60}
  output_tokens: {kind: uniform, min: 4, max: 20}
  images: {count: {kind: choice, values: [0, 1, 2]}, size: {kind: choice, values: [56x56, 112x112, 224x168]}}
policy: {kind: head_of_line}
engine:
  max_num_seqs: 8
  max_num_batched_tokens: 64
  num_kv_blocks: 60
  encoder_max_num_tokens: 256
  encoder_cache_rows: 100
front_end: {workers: 1, ms_per_megapixel: 50}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_live_run_fills_its_folder(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = tandem("replay", scenario, "--out", out, "--logprobs")
    assert result.exit_code == 0, result.output
    assert names(out) == sorted([*LIVE_FILES, "plots"])
    assert "measured" in result.output and "simulated" not in result.output
    live = json.loads((out / "live.json").read_text())
    assert (live["clock"], live["model"]) == ("thread_time", {"name": "tiny", "dtype": "float32"})
    assert live["memory"]["kv_bytes"] == 61 * 16 * 2 * 2 * 2 * 16 * 4
    assert json.loads((out / "run.json").read_text())["origin"] == "measured"
    tokens, requests = pd.read_parquet(out / "tokens.parquet"), pd.read_parquet(out / "requests.parquet")
    assert tokens.tokens.str.len().tolist() == requests.output_tokens.tolist() == tokens.logprobs.str.len().tolist()
    assert len(read_plans(out / "plans.jsonl.gz")) == len(pd.read_parquet(out / "iterations.parquet"))


def test_the_default_folder_ends_in_live(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scenario.parent)
    assert tandem("replay", scenario, "--no-plots", "--clock", "model").exit_code == 0
    assert names(scenario.parent / "runs" / "small.live") == LIVE_FILES


def test_under_the_models_clock_every_policy_compares_identical(scenario: Path, tmp_path: Path) -> None:
    simulated, live = tmp_path / "simulated", tmp_path / "live"
    several = ("--no-plots", "--set", f"policy.kind={POLICY_NAMES}")
    assert tandem("run", scenario, "--out", simulated, *several).exit_code == 0
    assert tandem("replay", scenario, "--out", live, "--clock", "model", *several).exit_code == 0
    result = tandem("compare", simulated, live, "--no-plots")
    assert result.exit_code == 0, result.output
    assert "twin: identical" in result.output or result.output.count("identical") >= len(POLICIES)


@pytest.mark.parametrize("clock", ["wall", "thread_time"])
def test_the_twin_of_a_measured_run_is_identical(clock: str, scenario: Path, tmp_path: Path) -> None:
    simulated, live = tmp_path / "simulated", tmp_path / "live"
    assert tandem("run", scenario, "--out", simulated, "--no-plots").exit_code == 0
    assert tandem("replay", scenario, "--out", live, "--no-plots", "--clock", clock).exit_code == 0
    result = tandem("compare", simulated, live)
    assert result.exit_code == 0, result.output
    assert "twin: identical" in result.output
    assert (live / "compare.json").exists() and list((live / "plots").glob("compare_*.png"))


def test_the_scenario_of_a_live_run_is_the_one_that_ran(scenario: Path, tmp_path: Path) -> None:
    out, free = tmp_path / "out", scenario.with_name("free.yaml")
    free.write_text(SCENARIO.replace("  num_kv_blocks: 60\n", "").replace("model: tiny", "model: qwen2-vl-7b"))
    result = tandem("replay", free, "--out", out, "--no-plots", "--model", "tiny", "--clock", "model")
    assert result.exit_code == 0, result.output
    again = tmp_path / "again"
    assert tandem("run", out / "scenario.yaml", "--out", again, "--no-plots").exit_code == 0
    for table in ("requests.parquet", "iterations.parquet"):
        assert (again / table).read_bytes() == (out / table).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda"], "no CUDA device"),
        (["--model", "none/such"], "no model"),
        (["--clock", "cuda"], "cuda events"),
        (["--dtype", "int4"], "dtype"),
        (["--images", "none"], "images: none is no folder"),
        (["--text", "none.txt"], "no tokenizer"),
        (["--set", "engine.num_kv_blocks=100000000"], "num_kv_blocks"),
        (["--set", "engine.encoder_cache_rows=1000000000000"], "encoder_cache_rows"),
        (["--set", "policy.kind=fcf"], "fcfs"),
        (["--pad-queries", "-1"], "pad_queries"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, scenario: Path) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is one here")
    result = tandem("replay", scenario, "--out", scenario.parent / "out", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and words in result.stderr


def test_an_interrupt_leaves_the_finished_requests(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(SCENARIO.replace("num_requests: 12", "num_requests: 5000").replace("rate: 60", "rate: 9"))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "cli", "replay", str(scenario), "--out", str(out), "--no-plots"]
    process = subprocess.Popen([sys.executable, "-c", RUN, *command[3:]], stdout=subprocess.PIPE)
    assert process.stdout is not None and b"tiny on" in process.stdout.readline()
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert names(out) == LIVE_FILES
    assert json.loads((out / "run.json").read_text())["partial"] is True
    assert (pd.read_parquet(out / "requests.parquet").status == "finished").any()


RUN = "import sys; from cli import app; app(sys.argv[1:])"
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
sys.meta_path.insert(0, Missing())
"""


def test_without_torch_the_command_says_what_to_install(scenario: Path) -> None:
    command = [sys.executable, "-c", WITHOUT + RUN, "replay", str(scenario)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "torch is not installed: pip install" in result.stderr


def test_simulating_imports_no_torch(scenario: Path, tmp_path: Path) -> None:
    code = f"{WITHOUT}\nimport sim\n{RUN}"
    command = [sys.executable, "-c", code, "run", str(scenario), "--out", str(tmp_path / "out")]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_variants_of_the_seed_have_weights_of_their_own(scenario: Path, tmp_path: Path) -> None:
    several, alone = tmp_path / "several", tmp_path / "alone"
    common = (scenario, "--no-plots", "--clock", "model", "--dtype", "float64")
    assert tandem("replay", *common, "--set", "seed=1,2", "--out", several).exit_code == 0
    assert tandem("replay", *common, "--set", "seed=2", "--out", alone).exit_code == 0
    both = [pd.read_parquet(folder / "tokens.parquet") for folder in (several / "seed=2", alone)]
    assert both[0].tokens.map(list).tolist() == both[1].tokens.map(list).tolist()


def test_a_simulated_run_in_a_live_runs_place_leaves_nothing_of_it(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert tandem("replay", scenario, "--out", out, "--no-plots", "--calibrate-every", "3").exit_code == 0
    assert "calibration.csv" in names(out)
    assert tandem("run", scenario, "--out", out, "--no-plots").exit_code == 0
    assert names(out) == FILES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "inf"], "temperature"),
        (["--temperature", "1e-39"], "temperature"),
        (["--threads", "1000000000000"], "threads"),
        (["--device", "cpu:3"], "cpu has no number"),
        (["--model", "tinny"], "nor a folder"),
        (["--model", "qwen3-vl-8b"], "can only be simulated"),
        (["--images", "x" * 300], "longer than 255 bytes"),
    ],
)
def test_more_wrong_input(arguments: list[str], words: str, scenario: Path) -> None:
    result = tandem("replay", scenario, "--out", scenario.parent / "out", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and words in result.stderr
