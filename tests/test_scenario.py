"""Scenario files: what is wrong with one is said in one line, with the file, the place in it and the nearest name."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import POLICIES
from sim import Scenario, run
from sim.published import METRICS
from sim.yaml_text import parse
from workloads.errors import InputError

BASE = Path("tests/data/scenario.yaml")
SEGMENTS = {"kind": "piecewise", "segments": [{"duration": 1, "rat": 2}]}
GAMMA = {"kind": "gamma", "rate": 6, "burstiness": 0.2}
USERS = {"kind": "concurrency", "users": 3}
SIZE = {"size": "512x512"}
KINDS = ", ".join(sorted(policy.model_fields["kind"].default for policy in POLICIES))
FIGURE = {"metric": "completed", "value": 1}


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
ITSELF: list[Any] = []
ITSELF.extend([ITSELF, ITSELF])


def figures(**changes: Any) -> dict[str, Any]:
    return {"source": "a paper", "figures": [FIGURE, FIGURE | changes]}


def complaint(path: Path, changes: dict[str, Any] | None = None) -> str:
    """What follows the file's name."""
    with pytest.raises(InputError) as caught:
        Scenario.load(path, changes)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


SET = [
    # misspelt and unknown names
    ("policy.kind", "fcsf", "policy.kind: unknown kind 'fcsf'; nearest: fcfs"),
    ("policy.knd", "fcfs", "policy.knd: unknown key for kind head_of_line; nearest: kind"),
    ("workloads.arrivals.rate", 4, "workloads: unknown key; nearest: workload"),
    ("enginee", {}, "enginee: unknown key; nearest: engine"),
    ("engine.max_seqs", 4, "engine.max_seqs: unknown key; nearest: max_num_seqs"),
    ("workload.arrivals.rat", 3, "workload.arrivals.rat: unknown key for kind gamma; nearest: rate"),
    ("workload.arrivals", GAMMA | {"burst": 1}, "workload.arrivals.burst: unknown key for kind gamma; nearest: "),
    ("workload.arrivals.kind", "poisson", "workload.arrivals.burstiness: unknown key for kind poisson; one of: kind, "),
    ("workload.arrivals", USERS | {"think_time": {"meen": 1}}, "workload.arrivals.think_time.meen: unknown key; "),
    ("workload.images", [SIZE, SIZE | {"cout": 1}], "workload.images.1.cout: unknown key; nearest: count"),
    ("workload.images.siez", "512x512", "workload.images.siez: unknown key; nearest: size"),
    ("workload.kind", "synthetik", "workload.kind: unknown kind 'synthetik'; nearest: synthetic"),
    ("published", figures(metrc="x"), "published.figures.1.metrc: unknown key; nearest: metric"),
    ("published", figures(metric="mean_ttft"), "published.figures.1.metric: unknown metric 'mean_ttft'; nearest: "),
    ("published", figures(policy="zz"), "published.figures.1: unknown policy 'zz'; one of: "),
    ("published", figures(change_words="parity"), "published.figures.1: needs one of value, change_percent and"),
    ("published", figures(against="fcfs"), "published.figures.1: a change_percent needs the policy"),
    ("slo.tpt", 1, "slo.tpt: unknown key; nearest: tpot"),
    ("model", "qwen3", "model: no model is called 'qwen3'; did you mean 'qwen3-vl-8b'?"),
    ("model", {"name": "qwen3-vl-8b", "max_pixel": 5}, "model.max_pixel: unknown key; nearest: max_pixels"),
    ("profile", "h200/qwen", "profile: no profile 'h200/qwen'; nearest: h200/qwen3-vl-8b"),
    ("profile", "nowhere.json", "profile: no profile '"),
    # wrong types and kinds
    ("engine.max_num_seqs", "x", "engine.max_num_seqs: should be a valid integer, not 'x'"),
    ("engine.max_num_seqs", None, "engine.max_num_seqs: should be a valid integer, not null"),
    ("engine.encoder_cache_rows", "unbound", "engine.encoder_cache_rows: should be a valid integer, or 'unb"),
    ("engine.chunked_prefill", "maybe", "engine.chunked_prefill: should be a valid boolean, not 'maybe'"),
    ("engine", None, "engine: should be a section of keys and values, not null"),
    ("engine", 5, "engine: should be a section of keys and values, not 5"),
    ("engine", {5: 3}, "engine.5: keys should be strings, not 5"),
    ("policy", "fcfs", "policy: should be a section of keys and values, not 'fcfs'"),
    ("policy", None, "policy: should be a section of keys and values, not null"),
    ("policy", {}, "policy: kind is missing"),
    ("policy.kind", None, f"policy.kind: unknown kind null; one of: {KINDS}"),
    ("policy.kind", [1], f"policy.kind: unknown kind a list; one of: {KINDS}"),
    ("profile", 5, "profile: should be a valid string, not 5"),
    ("seed", 1.5, "seed: should be a valid integer, not 1.5"),
    ("workload", {"kind": "azure"}, "workload.path: is missing"),
    ("workload.text_tokens", "x", "workload.text_tokens: must be a number, or a mapping with a kind, got 'x'"),
    ("workload.arrivals", USERS | {"think_time": "x"}, "workload.arrivals.think_time: should be a valid number"),
    # values that cannot be
    ("workload.arrivals.rate", -1, "workload.arrivals.rate: should be greater than 0, not -1"),
    ("workload.arrivals.rate", float("nan"), "workload.arrivals.rate: should be a finite number, not nan"),
    ("workload.arrivals.rate", float("inf"), "workload.arrivals.rate: should be a finite number, not inf"),
    ("workload.arrivals", USERS | {"think_time": {"mean": -1}}, "workload.arrivals.think_time.mean: should be"),
    ("workload.num_requests", 0, "workload.num_requests: should be greater than 0, not 0"),
    ("workload.images.size", "5000x10", "workload.images.size: an image's aspect ratio must not exceed 200"),
    ("workload.images.size", "abc", "workload.images.size: a size reads like 1024x768, got 'abc'"),
    ("workload.text_tokens", -5, "workload.text_tokens: should be greater than or equal to 0, not -5"),
    ("workload.text_tokens", {"kind": "choice", "values": []}, "workload.text_tokens.values: is empty; it needs"),
    ("workload.text_tokens", {"kind": "empirical", "values": []}, "workload.text_tokens.values: is empty; it needs"),
    ("workload", {"kind": "mix", "clients": []}, "workload.clients: is empty; it needs at least one entry"),
    ("workload", {"kind": "servegen", "path": "x", "clients": []}, "workload.clients: is empty; it needs at least"),
    ("workload", {"kind": "azure", "path": "a\0b"}, "workload.path: a path has no NUL character"),
    ("workload.images", [SIZE] * 101, "workload.images: has 101 entries; it has at most 100"),
    ("workload.images.size", [1024], "workload.images.size: a size reads like 1024x768, got 1 numbers"),
    ("engine", {(1, 2): 3}, "engine.(1, 2): keys should be strings, not a list"),
    (".".join("a" * 5000), 1, ".".join("a" * 5000) + ": not a path: it has too many parts"),
    ("seed", DEEP, "seed: not a scenario's: it contains itself, is nested too deeply"),
    ("seed", ITSELF, "seed: not a scenario's: it contains itself, is nested too deeply"),
    ("workload.text_tokens.min", 3000, "workload.text_tokens: min 3000 exceeds max 2000"),
    ("workload.output_tokens", {"kind": "empirical", "values": {5: -1}}, "workload.output_tokens.values.5: should be"),
    ("workload.arrivals", SEGMENTS, "workload.arrivals.segments.0.rat: unknown key; nearest: rate"),
    ("engine.encoder_cache_rows", 0, "engine.encoder_cache_rows: should be greater than or equal to 1, or 'un"),
    ("engine.max_num_seqs", 4096, "engine: max_num_batched_tokens (2048) must be at least max_num_seqs (4096)"),
    ("clients.timeout", 1e300, "clients.timeout: should be less than or equal to 1000000000, not 1e+300"),
    ("measure.warmup", 1e300, "measure.warmup: should be less than or equal to 1000000000, not 1e+300"),
    ("measure.warmup_requests", 10**18, "measure.warmup_requests: should be less than or equal to 1099511627776"),
    ("workload.num_requests", 10**18, "workload.num_requests: should be less than or equal to 1000000000, not"),
    ("workload.images.count", 10**6, "workload.images: count can reach 1000000; a request has at most 10000"),
    ("workload.arrivals.rate", 1e-300, "workload.arrivals.rate: 1e-300 is too near to zero; the least is 1e-09"),
    ("workload.arrivals", USERS | {"think_time": 1e18}, "workload.arrivals.think_time: should be less than or equal"),
    ("slo.ttft", -1, "slo.ttft: should be greater than 0, not -1"),
    ("name", "..", "name: names a folder: at most 80 letters"),
    ("name", "a/b", "name: names a folder: at most 80 letters"),
    # paths that lead nowhere
    ("", 1, ": not a path; it reads like workload.arrivals.rate"),
    ("engine..block_size", 1, "engine..block_size: not a path; it reads like workload.arrivals.rate"),
    ("name.x", 1, "name.x: name is 'tight', which has nothing inside"),
    ("workload.images.size.values.9", 1, "workload.images.size.values.9: '9' is none of the list's entries, which"),
    ("workload.images.size.values.x", 1, "workload.images.size.values.x: 'x' is none of the list's entries, which"),
    # what engines have and this one does not
    ("engine.enable_prefix_caching", True, "engine.enable_prefix_caching: prefix caching: engines have it, this"),
    ("engine.tensor_parallel_size", 2, "engine.tensor_parallel_size: tensor parallelism: engines have it"),
    ("engine.kv_cache_dtype", "fp8", "engine.kv_cache_dtype: quantized KV: engines have it"),
    ("engine.max_model_len", 4096, "engine.max_model_len: a limit on the model's length: engines have it"),
    ("lora", {}, "lora: LoRA: engines have it"),
    ("workload.images", [SIZE | {"turns": 2}], "workload.images.0.turns: multi-turn sessions: engines have it"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "message"), SET, ids=[f"{path[:40]} {message[-30:]}" for path, _, message in SET]
)
def test_a_wrong_value_is_named_with_its_place(path: str, value: Any, message: str) -> None:
    assert complaint(BASE, {path: value}).removeprefix("--set ").startswith(message)


def test_what_was_set_is_told_from_what_the_file_says() -> None:
    assert complaint(BASE, {"seed": -1}).startswith("--set seed: ")
    assert complaint(BASE, {"workload.arrivals.kind": "poisson"}).startswith("workload.arrivals.burstiness: ")


def laughs(level: str) -> str:
    """Nine levels of nine aliases."""
    names = "abcdefghij"
    lines = [f"{new}: &{new} " + level.format(", ".join([f"*{old}"] * 9)) for old, new in itertools.pairwise(names)]
    return "\n".join(["a: &a {x: 1}", *lines])


FILES = [
    ("", "is empty; a scenario is a mapping"),
    ("# only a comment\n", "is empty; a scenario is a mapping"),
    ("- a\n- b\n", "a scenario is a mapping, this is a list"),
    ("just words\n", "a scenario is a mapping, this is 'just words'"),
    ("a: 1\n\tb: 2\n", "not YAML: line 2, column 1: "),
    ("a: [1\n", "not YAML: line 2, column 1: "),
    ("seed: 1\nseed: 2\n", "line 2: seed stands twice"),
    ("engine:\n  block_size: 16\n  block_size: 32\n", "line 3: block_size stands twice"),
    ("a: &a\n  b: *a\n", "not YAML for a scenario: it contains itself, is nested too deeply or has more"),
    ("a: &a\n  <<: *a\n", "not YAML for a scenario: it contains itself"),
    ("[" * 5000, "not YAML for a scenario: it contains itself, is nested too deeply"),
    (laughs("[{}]"), "not YAML for a scenario: it contains itself, is nested too deeply or has more"),
    (laughs("{{<<: [{}]}}"), "not YAML for a scenario: it contains itself, is nested too deeply or has more"),
    ("engine:\n  <<: 5\n", "not YAML: line 2, column 7: "),
    ("engine:\n  <<: {a: 1}\n  <<: {b: 1}\n", "line 3: << stands twice"),
    ("a: 1\n---\nb: 2\n", "not YAML: line 2, column 1: "),
    ("a: !!python/object:os.system {}\n", "not YAML: line 1, column 4: could not determine a constructor"),
    ("seed: 99999999999999999999\n", "seed: 1e+20 is too large"),
    ("seed: -1e300\n", "seed: -1e+300 is too large"),
    (f"seed: {'9' * 5000}\n", "not a value: Exceeds the limit"),
    ("model: qwen3-vl-8b\n", "profile: is missing"),
    ("5: 1\n", "5: keys should be strings, not 5"),
]


@pytest.mark.parametrize(("text", "message"), FILES, ids=[text[:20] for text, _ in FILES])
def test_a_file_that_is_no_scenario(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert complaint(file).startswith(message)


def test_mappings_are_merged_below_a_mappings_own_keys() -> None:
    text = "d: &d {x: 1, y: 1}\ne: &e {<<: *d, x: 2}\nf: {<<: [*e, *d], y: 3}\ng: {<<: *e}\n"
    merged = {"x": 2, "y": 1}
    assert parse(text) == {"d": {"x": 1, "y": 1}, "e": merged, "f": {"x": 2, "y": 3}, "g": merged}
    with pytest.raises(InputError, match="line 2: x stands twice"):
        parse("d: &d {x: 1}\ne: {<<: *d, x: 2, x: 3}")


@pytest.mark.parametrize("changes", ["x", 5, {5: 1}, {None: 1}, {("a", "b"): 1}])
def test_changes_that_are_no_mapping_of_paths(changes: Any) -> None:
    with pytest.raises(InputError, match=r"^set(: a path is text| is a mapping)[^\n]*$"):
        run(BASE, changes)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.yaml") == "cannot be read: No such file or directory"
    assert complaint(tmp_path) == "cannot be read: Is a directory"
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    assert complaint(tmp_path / "latin.yaml") == "cannot be read: not UTF-8 text"


def test_in_the_file_itself_the_place_stands_alone(tmp_path: Path) -> None:
    content = yaml.safe_load(BASE.read_text())
    content["workload"]["arrivals"]["rate"] = -4
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(content))
    assert complaint(tmp_path / "x.yaml") == "workload.arrivals.rate: should be greater than 0, not -4"


def test_optional_fields_and_sections_that_the_file_lacks_can_be_set() -> None:
    changes = {"clients.timeout": 5, "engine.block_size": 32, "simulation": {"fast_path": False}}
    scenario = Scenario.load(BASE, changes)
    assert scenario.clients.timeout == 5
    assert scenario.engine.block_size == 32
    assert scenario.simulation.fast_path is False


def test_entries_of_lists_and_keys_that_are_numbers_can_be_set() -> None:
    scenario = Scenario.load(BASE, {"workload.images.size.values.0": "640x480", "workload.images.count.weights.3": 9})
    described = scenario.workload.model_dump()
    assert described["images"][0]["size"]["values"][0] == (640, 480)
    assert described["images"][0]["count"]["weights"][3] == 9
    weighted = {"workload.output_tokens": {"kind": "empirical", "values": {5: 1.0, 7: 1.0}}}
    scenario = Scenario.load(BASE, {**weighted, "workload.output_tokens.values.5": 2.0})
    assert scenario.workload.model_dump()["output_tokens"]["values"] == {5: 2.0, 7: 1.0}


def test_setting_a_value_changes_nothing_of_the_callers() -> None:
    policy = {"kind": "fcfs"}
    assert Scenario.load(BASE, {"policy": policy, "policy.kind": "eager"}).policy.kind == "eager"
    assert policy == {"kind": "fcfs"}


@pytest.mark.parametrize(
    ("file", "name"), [("plain.yaml", "plain"), ("a.b.yaml", "a.b"), ("two words.yml", "two_words"), (".x.yaml", "x")]
)
def test_the_name_is_the_files_unless_it_says_otherwise(tmp_path: Path, file: str, name: str) -> None:
    content = yaml.safe_load(BASE.read_text())
    del content["name"]
    (tmp_path / file).write_text(yaml.safe_dump(content))
    assert Scenario.load(tmp_path / file).name == name
    assert Scenario.load(tmp_path / file, {"name": "other"}).name == "other"


def test_a_profiles_file_is_found_beside_the_scenario(tmp_path: Path) -> None:
    content = yaml.safe_load(BASE.read_text())
    (tmp_path / "mine.json").write_bytes(Path("scenarios/profiles/h200/qwen3-vl-8b-sglang-tp1.json").read_bytes())
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(content | {"profile": "mine.json"}))
    assert Scenario.load(tmp_path / "x.yaml").profile == str(tmp_path / "mine.json")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1_000_000),
        ("1E+2", 100),
        ("2.5e-1", 0.25),
        ("-1e3", -1000),
        ("'1e6'", "1e6"),
        ("1.5", 1.5),
        ("e5", "e5"),
    ],
)
def test_powers_of_ten_are_numbers(text: str, value: Any) -> None:
    assert parse(text) == value
    assert type(parse(text)) is type(value)


def test_published_figures_may_name_every_metric_of_a_summary() -> None:
    assert set(METRICS) == set(run(BASE, {"workload.num_requests": 3}).summary)


def test_more_users_than_requests_cost_nothing() -> None:
    start = time.perf_counter()
    assert run(BASE, {"workload.arrivals": USERS | {"users": 1_000_000}}).summary["completed"] == 20
    assert time.perf_counter() - start < 2


ENDLESS = [
    ({"workload.arrivals": USERS | {"users": 1, "think_time": 1e9}}, "think_time is too long"),
    ({"workload.arrivals": {"kind": "constant", "rate": 1e-9}}, "the rate is too low"),
    ({"workload.images.size": "65535x65535", "front_end.ms_per_megapixel": 1e9}, "the front end is at work past"),
]


@pytest.mark.parametrize(("changes", "message"), ENDLESS, ids=[message for _, message in ENDLESS])
def test_a_run_past_the_end_of_the_clock_says_why(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(BASE, changes)
    assert "146 years" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["E2", "G1", "P2", "D2"])
@pytest.mark.parametrize("fast_path", [True, False])
def test_iterations_past_the_end_of_the_clock_say_why(tmp_path: Path, name: str, fast_path: bool) -> None:
    profile = json.loads(Path("scenarios/profiles/h200/qwen3-vl-8b-sglang-tp1.json").read_text())
    del profile["tables"]
    profile["coefficients"][name]["value"] = 1e9
    (tmp_path / "slow.json").write_text(json.dumps(profile))
    with pytest.raises(InputError, match=r"^the run goes past 146 years[^\n]*$"):
        run(BASE, {"profile": str(tmp_path / "slow.json"), "simulation.fast_path": fast_path})
