"""Sweeps as YAML: what they may say, and the one line that a wrong one gets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.sweep_file import Sweep
from sim.sweep_knobs import Range
from sim.sweep_points import Points
from sim.sweep_search import search_of
from workloads.errors import InputError

SCENARIO = str(Path("tests/data/scenario.yaml").resolve())
RATE = "workload.arrivals.rate"
KNOBS = {"engine.encoder_cache_rows": [4096, 8192]}


def sweep(folder: Path, **content: Any) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"scenario": SCENARIO, "knobs": KNOBS} | content))
    return path


def points(folder: Path, **content: Any) -> Points:
    return Points(Sweep.load(sweep(folder, **content)))


def test_a_scenario_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(Path(SCENARIO).read_text().replace("num_kv_blocks", "num_kv_block"))
    with pytest.raises(InputError, match=r"s.yaml: engine.num_kv_block: unknown key; nearest: num_kv_blocks"):
        points(tmp_path, scenario="s.yaml")


@pytest.mark.parametrize("search", ["grid", {"kind": "grid"}, "max_goodput", {"kind": "random", "settings": 3}])
def test_a_search_is_a_word_or_a_section(tmp_path: Path, search: Any) -> None:
    kind = Sweep.load(sweep(tmp_path, search=search)).search.kind
    assert kind == (search if isinstance(search, str) else search["kind"])


def test_files_are_looked_for_beside_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "s.yaml").write_text(Path(SCENARIO).read_text())
    path = sweep(tmp_path / "a", scenario="../s.yaml")
    assert Points(Sweep.load(path)).scenario.name == "tight"
    assert Sweep.load(path).name == "sweep"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"knob": {}}, "knob: unknown key; nearest: knobs"),
        ({"search": "gird"}, "search.kind: unknown kind 'gird'; nearest: grid"),
        ({"search": {"kind": "random"}}, "search.settings: is missing"),
        ({"search": {"kind": "max_goodput", "attainmant": 1}}, "search.attainmant: unknown key for kind max_goodput; "),
        ({"search": {"kind": "max_goodput", "attainment": 1.5}}, "search.attainment: should be less than or equal to"),
        ({"search": "max_goodput", "knobs": {RATE: [1]}}, f"knobs.{RATE}: is what the search varies"),
        ({"search": "max_goodput", "best": {"maximise": "completed"}}, "best: goes with a grid or a random search"),
        ({"knobs": {}}, "knobs: there are none"),
        ({"knobs": {"seed": [1, 2]}}, "knobs.seed: seed is no knob: replications vary it"),
        ({"knobs": {RATE: 4}}, f"knobs.{RATE}: should be a list of values, or a range with min and max, not 4"),
        ({"knobs": {RATE: []}}, f"knobs.{RATE}: is empty; it needs at least one value"),
        ({"knobs": {RATE: [4, 4]}}, f"knobs.{RATE}: 4 stands there twice"),
        ({"knobs": {RATE: {"min": 1, "max": 2}}}, f"knobs.{RATE}: a range goes with search: {{kind: random"),
        ({"best": {"maximise": "p99_ttf_ms"}}, "best.maximise: unknown metric 'p99_ttf_ms'; nearest: p99_ttft_ms"),
        ({"best": {}}, "best: give either maximise or minimise"),
        ({"replications": 0}, "replications: should be greater than or equal to 1, not 0"),
        ({"scenario": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_what_is_wrong_in_the_file_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        points(tmp_path, **content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"knobs": {"engine.num_kv_block": [100]}},
            "knobs.engine.num_kv_block: unknown key; nearest: num_kv_blocks",
        ),
        ({"knobs": {"policy.kind": ["fcfs", "fcsf"]}}, "knobs.policy.kind: unknown kind 'fcsf'; nearest: fcfs"),
        ({"knobs": {RATE: [4, -1]}}, f"knobs.{RATE}: should be greater than 0, not -1"),
        ({"set": {"engine.num_kv_block": 100}}, "set.engine.num_kv_block: unknown key; nearest: num_kv_blocks"),
        ({"search": {"kind": "max_goodput", "rate": "workload.rate"}}, "search.rate: workload.rate is null"),
        ({"search": {"kind": "max_goodput", "rate": "workload.rate", "start": 1}}, "knobs.workload.rate: unknown key"),
        ({"search": "max_goodput", "set": {"slo": {"itl": 1}}}, "slo: max_goodput needs a bound on ttft, tpot or e2el"),
        (
            {"search": {"kind": "random", "settings": 2}, "knobs": {RATE: {"min": -2, "max": -1}}},
            f"knobs.{RATE}: should be greater than 0, not -",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_a_value_that_fits_nowhere_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        search_of(points(tmp_path, **content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_only_do_not_go_together_are_no_error(tmp_path: Path) -> None:
    """A batch of 2,048 tokens cannot hold a token of each of 4,096 sequences; one of 8,192 can."""
    knobs = {"engine.max_num_batched_tokens": [2048, 8192], "engine.max_num_seqs": [64, 4096]}
    asked = next(search_of(points(tmp_path, knobs=knobs)).rounds())
    assert [bool(point.reason) for point in asked] == [False, True, False, False]
    assert asked[1].reason.startswith("knobs.engine: max_num_batched_tokens (2048) must be at least max_num_seqs")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1e-3, 1e3), st.floats(1.01, 1e3), st.booleans(), st.booleans(), st.integers(0, 9))
def test_draws_stay_in_their_range(least: float, factor: float, log: bool, whole: bool, seed: int) -> None:
    drawn = Range(min=least, max=least * factor, log=log, whole=whole).draw(np.random.default_rng(seed))
    assert least * (1 - 1e-5) - whole <= drawn <= least * factor * (1 + 1e-5) + whole
    assert isinstance(drawn, int) == whole


def test_more_draws_begin_with_the_same(tmp_path: Path) -> None:
    knobs = {RATE: {"min": 1, "max": 9, "log": True}, "policy.kind": ["fcfs", "footprint"]}
    few, many = (
        next(search_of(points(tmp_path, knobs=knobs, search={"kind": "random", "settings": n})).rounds())
        for n in (3, 8)
    )
    assert [p.setting for p in few] == [p.setting for p in many[:3]]
    assert len({p.id for p in many}) == 8


def test_a_rate_that_takes_no_fractions_is_refused(tmp_path: Path) -> None:
    """Between two whole numbers nothing could be found, and the answer would be wrong."""
    changes = {"workload.arrivals": {"kind": "concurrency", "users": 3}}
    search = {"kind": "max_goodput", "rate": "workload.arrivals.users"}
    with pytest.raises(InputError, match=r"search\.rate: workload\.arrivals\.users takes no fractions"):
        search_of(points(tmp_path, set=changes, knobs={}, search=search))
