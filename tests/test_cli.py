"""The command `tandem`: what it writes, prints and returns."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from pydantic_core import SchemaError
from rich.console import Console
from typer.testing import CliRunner, Result

import sim.command
from cli import app
from policies import POLICIES
from sim import Scenario, run
from sim.command import RunCommand
from sim.files import whole
from sim.output import PLOTS, write_run
from sim.policy_list import policy_list
from sim.result import Run
from sim.variant_folders import VARIANTS
from workloads.errors import InputError

KINDS = [policy.model_fields["kind"].default for policy in POLICIES]
TIGHT = "tests/data/scenario.yaml"
TEXT = "scenarios/text_only.yaml"
DEADLOCK = "scenarios/deadlock.yaml"
TABLES = ("iterations.parquet", "requests.parquet")
FILES = sorted([*TABLES, "run.json", "scenario.yaml", "summary.json"])


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def tandem(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def simulated(out: Path, *arguments: str | Path) -> Result:
    result = tandem("run", "--no-plots", "--out", out, *arguments)
    assert result.exit_code == 0, result.output
    return result


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_one_run_fills_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "some" / "where"
    result = tandem("run", TIGHT, "--out", out)
    assert result.exit_code == 0, result.output
    assert names(out) == sorted([*FILES, "plots"])
    assert {"latency_cdfs.png", "iteration_timeline.png", "request_gantt.png"} <= set(names(out / "plots"))
    assert all(PLOTS.fullmatch(name) for name in names(out / "plots"))
    assert "simulated" in result.output
    assert str(out) in result.output
    about = json.loads((out / "run.json").read_text())
    assert (about["name"], about["label"], about["seed"], about["verdict"]) == ("tight",) * 2 + (1, "finished")
    assert about["partial"] is False
    assert {"python", "numpy", "simpy", "pandas", "pyarrow", "tandem-serving"} == set(about["versions"])
    assert len(about["profile"]["digest"]) == 64


def test_the_default_folder_is_named_after_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Path(TIGHT).resolve()
    monkeypatch.chdir(tmp_path)
    assert tandem("run", scenario, "--no-plots").exit_code == 0
    assert names(tmp_path / "runs" / "tight") == FILES
    assert tandem("run", scenario, "--no-plots", "--set", "name=a,b").exit_code == 0
    assert names(tmp_path / "runs" / "a+b") == ["name=a", "name=b", VARIANTS]


def test_the_files_hold_what_the_python_interface_gives(tmp_path: Path) -> None:
    simulated(tmp_path, TIGHT)
    r = run(TIGHT)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "requests.parquet"), r.requests)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "iterations.parquet"), r.iterations)
    assert json.loads((tmp_path / "summary.json").read_text()) == r.summary


@pytest.mark.parametrize("policy", ["unbudgeted", "footprint"])
def test_the_resolved_scenario_runs_to_the_same_tables(tmp_path: Path, policy: str) -> None:
    simulated(tmp_path / "first", TIGHT, "--set", f"policy.kind={policy}")
    simulated(tmp_path / "again", tmp_path / "first" / "scenario.yaml")
    assert (tmp_path / "first" / "scenario.yaml").read_text().startswith("# ")
    for name in FILES:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


@pytest.mark.parametrize(
    "scenario",
    sorted([*Path("scenarios").glob("*.yaml"), *Path("scenarios").glob("published/*.yaml")]),
    ids=lambda path: path.stem,
)
def test_every_resolved_scenario_loads_as_it_was(tmp_path: Path, scenario: Path) -> None:
    from sim.output import scenario_text
    from sim.world import resolve

    resolved = resolve(Scenario.load(scenario)).scenario
    copy = tmp_path / "copy.yaml"
    copy.write_text(scenario_text(resolved))
    loaded = Scenario.load(copy)
    assert scenario_text(loaded) == scenario_text(resolved)
    assert resolve(loaded).scenario == loaded


def test_same_seed_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulated(tmp_path / name, TIGHT)
    simulated(tmp_path / "c", TIGHT, "--set", "seed=2")
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert all((tmp_path / "a" / name).read_bytes() != (tmp_path / "c" / name).read_bytes() for name in TABLES)


def test_variants_get_a_folder_each(tmp_path: Path) -> None:
    sets = ["--set", "workload.arrivals.rate=4,8", "--set", "policy.kind=fcfs,unbudgeted"]
    result = simulated(tmp_path, TIGHT, *sets)
    folders = ["rate=4_fcfs", "rate=4_unbudgeted", "rate=8_fcfs", "rate=8_unbudgeted"]
    assert names(tmp_path) == [*folders, VARIANTS]
    assert all(names(tmp_path / folder) == FILES for folder in folders)
    assert json.loads((tmp_path / folders[2] / "run.json").read_text())["label"] == "rate=8 fcfs"
    assert all(label in result.output for label in ("rate=4 fcfs", "rate=8 unbudgeted"))


def test_variants_share_their_plots(tmp_path: Path) -> None:
    sets = ["--set", "workload.num_requests=5", "--set", "policy.kind=fcfs,unbudgeted"]
    assert tandem("run", TIGHT, *sets, "--out", tmp_path).exit_code == 0
    assert names(tmp_path) == ["fcfs", "plots", "unbudgeted", VARIANTS]
    plots = names(tmp_path / "plots")
    assert "latency_cdfs.png" in plots
    assert all(PLOTS.fullmatch(name) for name in plots)
    assert sum(name.startswith("occupancy-") for name in plots) == 2


def test_several_scenarios_stand_side_by_side(tmp_path: Path) -> None:
    result = simulated(tmp_path, TIGHT, TEXT)
    assert names(tmp_path) == ["scenario", "text_only", VARIANTS]
    assert "scenario" in result.output and "text_only" in result.output


def test_variants_that_never_differed_are_marked(tmp_path: Path) -> None:
    result = simulated(tmp_path, TEXT, "--set", "policy.kind=fcfs,eager,footprint")
    (marked,) = [line for line in result.output.splitlines() if "same decisions as" in line]
    assert marked.count("fcfs") == 2
    result = simulated(tmp_path, TEXT, "--set", "seed=1,2")
    assert "same decisions as" not in result.output


def test_an_earlier_runs_plots_and_iterations_do_not_stay(tmp_path: Path) -> None:
    simulated(tmp_path, TIGHT)
    plots = tmp_path / "plots"
    plots.mkdir()
    for name in ("stalls-fcfs.png", "latency_cdfs.png", "mine.png"):
        (plots / name).write_text("old")
    simulated(tmp_path, TIGHT, "--set", "measure.iterations=false")
    assert names(plots) == ["mine.png"]
    assert "iterations.parquet" not in names(tmp_path)


def test_a_stalled_run_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    result = tandem("run", DEADLOCK, "--set", "policy.kind=head_of_line,footprint", "--no-plots", "--out", tmp_path)
    assert result.exit_code == 3
    assert "head_of_line: stalled: request 1 waits for" in result.output
    assert json.loads((tmp_path / "head_of_line" / "run.json").read_text())["blockers"]
    assert "stalled" in set(pd.read_parquet(tmp_path / "head_of_line" / "requests.parquet")["status"])
    assert json.loads((tmp_path / "footprint" / "run.json").read_text())["verdict"] == "finished"


def test_a_run_that_ends_out_of_memory_is_no_success(tmp_path: Path) -> None:
    sets = ["policy.kind=fcfs", "engine.encoder_cache_rows=unbounded", "simulation.out_of_memory=end_run"]
    options = [part for text in sets for part in ("--set", text)]
    result = tandem("run", "scenarios/published/memory_stress.yaml", *options, "--no-plots", "--out", tmp_path)
    assert result.exit_code == 3
    assert "out of memory" in result.output
    assert names(tmp_path) == FILES


def test_rejected_requests_are_no_failure_and_say_why(tmp_path: Path) -> None:
    result = simulated(tmp_path, TIGHT, "--set", "engine.num_kv_blocks=10")
    assert "rejected: request" in result.output
    assert "raise num_kv_blocks" in result.output


def test_what_was_changed_in_the_scenario_is_said(tmp_path: Path) -> None:
    result = simulated(tmp_path, TIGHT, "--set", "engine.encoder_max_num_tokens=100")
    assert "encoder_max_num_tokens raised from 100 to 7744" in result.output


def test_published_figures_stand_beside_the_simulated_ones(tmp_path: Path) -> None:
    scenario = yaml.safe_load(Path(TIGHT).read_text())
    figures = [
        {"metric": "completed", "policy": "fcfs", "value": 17},
        {"metric": "mean_ttft_ms", "policy": "eager", "change_percent": -9.2, "against": "fcfs"},
        {"metric": "p99_ttft_ms", "policy": "eager", "change_words": "within 3 %", "against": "fcfs"},
        {"metric": "mean_ttft_ms", "policy": "footprint", "value": 5, "note": "so they say"},
    ]
    scenario["published"] = {"source": "a paper", "figures": figures}
    file = tmp_path / "with_figures.yaml"
    file.write_text(yaml.safe_dump(scenario))
    sets = ["--set", "workload.num_requests=15", "--set", "policy.kind=fcfs,eager"]
    result = simulated(tmp_path / "out", file, *sets)
    rows = result.output.splitlines()
    assert "published by a paper" in result.output and "workload.num_requests=15, which" in result.output
    (row,) = [row for row in rows if row.startswith("completed") and "fcfs" in row]
    assert row.split()[2:] == ["17", "15"]
    (row,) = [row for row in rows if "-9.2 %" in row]
    assert "eager against fcfs" in row and row.count("%") == 2
    (row,) = [row for row in rows if "within 3 %" in row]
    assert "eager against fcfs" in row and row.count("%") == 2
    (row,) = [row for row in rows if "so they say" in row]
    assert "not run" in row
    assert "not run: add --set policy.kind=fcfs,eager,footprint" in rows


REUSE = "scenarios/published/reuse.yaml"


def test_the_scenarios_own_value_is_no_change(tmp_path: Path) -> None:
    """One table, a column for each situation, and only what differs is held against it."""
    result = simulated(tmp_path, REUSE, "--set", "seed=2", "--set", "engine.encoder_cache_reuse=true,false")
    (heading,) = [line for line in result.output.splitlines() if line.split()[:2] == ["metric", "of"]]
    assert "encoder_cache_reuse=false" in heading and "true" not in heading
    aside = "simulated with seed=2, engine.encoder_cache_reuse=false, which the published"
    assert aside in result.output
    assert result.output.count("published by") == 1


def test_what_only_the_files_own_values_set_is_no_aside(tmp_path: Path) -> None:
    result = simulated(tmp_path, REUSE, "--set", "engine.encoder_cache_reuse=true", "--set", "name=other")
    assert "which the published figures do not have" not in result.output


def test_reasons_are_grouped_by_what_stands_before_their_advice(tmp_path: Path) -> None:
    sets = ["policy.kind=fcfs", "engine.encoder_cache_rows=unbounded"]
    options = [part for text in sets for part in ("--set", text)]
    result = simulated(tmp_path, "scenarios/published/memory_stress.yaml", *options)
    (line,) = [line for line in result.output.splitlines() if "failed: request" in line]
    assert "out of memory: encoding " in line and "lower free_gpu_memory_fraction" in line


def console(width: int) -> Console:
    return Console(width=width, force_terminal=True, color_system=None)


def test_five_policies_stand_side_by_side_on_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.command, "new_console", lambda: console(80))
    kinds = "unbudgeted,fcfs,head_of_line,eager,footprint"
    result = simulated(tmp_path, "scenarios/bursty_images.yaml", "--set", f"policy.kind={kinds}")
    lines = result.output.splitlines()
    assert lines[0].split() == ["simulated", *kinds.split(",")]
    end = next(index for index, line in enumerate(lines) if line.startswith("simulated with"))
    assert end > 15 and max(map(len, lines[:end])) <= 80
    assert "within TTFT, TPOT" in result.output and "of 4,096" in result.output


def test_a_table_that_is_wide_enough_has_one_line_a_figure(tmp_path: Path) -> None:
    output = simulated(tmp_path, "scenarios/bursty_images.yaml").output
    (attainment,) = [line for line in output.splitlines() if line.startswith("within TTFT, TPOT SLOs (%)")]
    (blocks,) = [line for line in output.splitlines() if line.startswith("KV blocks used, of 2,000")]
    assert attainment.split()[-1] == "83.0" and blocks.split()[-1].replace(",", "").isdecimal()


def test_the_resolved_scenario_reads_as_one_would_write_it(tmp_path: Path) -> None:
    simulated(tmp_path, "scenarios/bursty_images.yaml")
    text = (tmp_path / "scenario.yaml").read_text()
    assert "values: [256x256, 640x480, 1024x1024]" in text
    assert "text_tokens: {kind: lognormal" in text
    assert "workload:\n  kind: synthetic\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "error: nowhere.yaml: cannot be read: No such file or directory"),
        ([TIGHT, "--set", "seed"], "error: --set seed: reads like path=value, as in policy.kind=fcfs"),
        ([TIGHT, "--set", "seed=-1"], f"error: {TIGHT}: --set seed: should be greater than or equal to 0, not -1"),
        ([TIGHT, "nowhere.yaml"], "error: nowhere.yaml: cannot be read: No such file or directory"),
        ([TIGHT, "--set", "policy.kind=fcfs,fsfc"], f"error: {TIGHT}: --set policy.kind: unknown kind 'fsfc'"),
    ],
)
def test_wrong_input_is_one_line_before_anything_runs(tmp_path: Path, arguments: list[str], message: str) -> None:
    out = tmp_path / "out"
    result = tandem("run", *arguments, "--out", out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = tandem("run", TIGHT, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {tmp_path / 'file'}")
    assert result.stderr.count("\n") == 1


def test_a_corrupt_line_of_a_trace_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    good = '{"id": 0, "arrival": 0, "prompt_tokens": 5, "output_tokens": 5}\n'
    trace.write_text(good * 3 + '{"id": 0, "arrival": 0, "prompt_tokens": 5}\n')
    result = tandem("run", TIGHT, "--set", f"workload={{kind: jsonl, path: {trace}}}", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"{trace}:4: output_tokens" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_error_stays_one_short_line(tmp_path: Path) -> None:
    for text in ("se\ned=1", "x" * 5000, "a b " * 2000 + "=[", "seed=" + "9 " * 3000 + "\n"):
        result = tandem("run", TIGHT, "--set", text, "--out", tmp_path)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1 and len(result.stderr) < 700
    assert "--set se\\ned" in tandem("run", TIGHT, "--set", "se\ned=1").stderr
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"k\ney" * 500: 1}))
    result = tandem("run", file)
    assert result.stderr.count("\n") == 1 and len(result.stderr) < 700


@pytest.mark.parametrize("name", ["b\udcff", "a\0b"])
def test_paths_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    tight, bad = Path(TIGHT), tmp_path / name
    for files, out in (([tight], bad), ([bad], tmp_path), ([tight, bad], tmp_path)):
        with pytest.raises(InputError, match="path"):
            RunCommand(files, [], out, plots=False)
    with pytest.raises(InputError, match="path"):
        run(name)


SMALL = ["run", TIGHT, "--no-plots", "--set", "workload.num_requests=3"]
COMMAND = [sys.executable, "-W", "error", "-c", "import cli; cli.app()"]


def test_whoever_stops_reading_gets_all_files(tmp_path: Path) -> None:
    command = [*COMMAND, *SMALL, "--out", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert names(tmp_path) == FILES


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
@pytest.mark.parametrize("arguments", [SMALL, ["schema"]])
def test_a_full_disk_below_stdout_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    command = [*COMMAND, *arguments, *(["--out", str(tmp_path)] if arguments is SMALL else [])]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "error: stdout: cannot be written: No space left on device\n"


def test_what_a_user_wrote_is_printed_as_it_is(tmp_path: Path) -> None:
    scenario = yaml.safe_load(Path(TIGHT).read_text())
    figures = [
        {"metric": "completed", "policy": "fcfs", "change_words": "[/] :smile:", "against": "eager", "note": "[/x]"},
        {"metric": "completed", "policy": "fcfs", "change_percent": -0.04, "against": "fcfs"},
    ]
    scenario["published"] = {"source": "[red]us", "figures": figures}
    files = [tmp_path / "[red]" / "a.yaml", tmp_path / "[" / "b]" / "a.yaml"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(yaml.safe_dump(scenario))
    sets = ["--set", "policy.kind=fcfs"]
    output = simulated(tmp_path / "out", *files, *sets).output
    assert all(words in output for words in ("[/] :smile:", "[/x]", "published by [red]us", "[red] ", "[/b]"))
    (row,) = {line for line in output.splitlines() if "fcfs against fcfs" in line}
    assert row.count(" 0.0 %") == 2 and "-0.0" not in row and "+0.0" not in row


@pytest.mark.parametrize("field", ["value", "change_percent"])
def test_published_figures_are_finite(tmp_path: Path, field: str) -> None:
    figure = {"metric": "completed", field: float("nan"), **({"against": "fcfs"} if "_" in field else {})}
    published = yaml.safe_dump({"source": "us", "figures": [figure]}, default_flow_style=True, width=1000).strip()
    result = tandem("run", TIGHT, "--set", f"published={published}", "--out", tmp_path)
    assert result.exit_code == 2
    assert f"published.figures.0.{field}: should be a finite number, not nan" in result.stderr


def test_a_rerun_removes_what_earlier_ones_left(tmp_path: Path) -> None:
    ours = [tmp_path / ".requests.parquet.999999999.partial", tmp_path / "plots" / ".stalls.png.999999999.partial"]
    running = tmp_path / f".run.json.{os.getppid()}.partial"
    (tmp_path / "plots").mkdir()
    for path in (*ours, running, tmp_path / "plots" / "stalls.png"):
        path.touch()
    simulated(tmp_path, TIGHT, "--set", "workload.num_requests=3")
    assert names(tmp_path) == sorted([*FILES, running.name])


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names(tmp_path) == ["table"]


def test_an_interrupt_while_writing_leaves_no_run_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    r = run(TIGHT, {"workload.num_requests": 5})
    write_run(r, "x", tmp_path)
    assert names(tmp_path) == FILES

    def interrupted(self: Run) -> object:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "iteration_pieces", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_run(r, "x", tmp_path)
    assert names(tmp_path) == [name for name in FILES if name != "run.json"]
    assert len(pd.read_parquet(tmp_path / "iterations.parquet")) == r.num_iterations


LONG = [TEXT, "--set", "workload.num_requests=5000000", "--set", "seed=1,2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_writes_what_has_finished(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-W", "error", "-c", "import cli; cli.app()", "run", *LONG, "--out", tmp_path / "out"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (tmp_path / "out" / "seed=2").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted: what had finished is marked partial; 1 more not started" in out
    assert names(tmp_path / "out" / "seed=1") == FILES
    assert names(tmp_path / "out" / "seed=2") == []
    about = json.loads((tmp_path / "out" / "seed=1" / "run.json").read_text())
    assert about["partial"] is True and about["verdict"] == "interrupted"
    requests = pd.read_parquet(tmp_path / "out" / "seed=1" / "requests.parquet")
    assert set(requests["status"]) <= {"finished", "unfinished"}
    assert (requests["status"] == "finished").sum() > 10
    assert requests["request_id"].is_unique


def wrapped() -> None:
    """As Python 3.11 does where a class is being made."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error


def in_words() -> None:
    raise SchemaError('Error building "model" validator:\n  KeyboardInterrupt:')


def plain() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("interrupt", [plain, wrapped, in_words])
def test_an_interrupt_while_checking_scenarios_is_no_traceback(
    interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        interrupt()

    monkeypatch.setattr(sim.command, "expand", interrupted)
    result = tandem("run", TIGHT)
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_policies_are_listed_with_their_sources() -> None:
    result = tandem("policies")
    assert result.exit_code == 0
    assert {line for line in result.output.splitlines() if line and line[0] != " "} == set(KINDS)
    assert "Source: TensorRT-LLM" in result.output
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize("width", [40, 80])
def test_policies_break_no_words(width: int) -> None:
    lines = policy_list(POLICIES, width).splitlines()
    words = {word for policy in POLICIES for word in f"{policy.__doc__} {policy.source}".split()}
    assert max(map(len, lines)) <= width
    assert {word for line in lines for word in line.split()} <= words | {"Source:", *KINDS}


def test_every_policy_says_in_one_sentence_what_it_does() -> None:
    for policy in POLICIES:
        sentence = (policy.__doc__ or "").splitlines()[0]
        assert sentence.endswith(".") and ". " not in sentence


def test_the_schema_knows_every_policy() -> None:
    schema = json.loads(tandem("schema").output)
    assert schema["title"] == "Scenario"
    assert "HeadOfLine" in schema["$defs"]


def test_the_version_is_said() -> None:
    assert tandem("--version").output.startswith("tandem 0.")


def test_help_says_how_to_compare_and_what_the_exit_codes_mean() -> None:
    output = tandem("run", "--help").output
    assert "--set policy.kind=fcfs,footprint" in output
    assert "even if requests were rejected or failed" in output and "end_run" in output
    assert "list[" not in output and output.count("runs/NAME") == 1


def test_help_needs_neither_pandas_nor_torch() -> None:
    code = "import sys, cli\ntry: cli.app(['run', '--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'pandas', 'torch', 'simpy', 'matplotlib'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("[]\n")
