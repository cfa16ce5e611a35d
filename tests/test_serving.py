"""Real servers' figures: read, turned into scenarios, predicted, and the front end fitted to some of them."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import sim.published_command
import sim.serving_fit
import sim.serving_record
from cli import app
from sim import Scenario
from sim.front_end import FrontEnd
from sim.replications import Several
from sim.resolve import resolve
from sim.run import simulate_resolved
from sim.serving_fit import Fit, costs_of, fit, is_fitted, with_costs
from sim.serving_record import write_fits
from sim.serving_rows import ServingRow, read_rows
from sim.serving_scenario import FOLDER, scenario_of
from sim.serving_stages import stages
from sim.serving_table import Prediction, fidelity, mean_error, predict
from workloads.errors import InputError

ROWS = FOLDER / "h200_qwen3vl8b_serving.csv"


@pytest.fixture(scope="module")
def rows() -> list[ServingRow]:
    return read_rows(ROWS)


def edited(tmp_path: Path, **cells: Any) -> Path:
    """The first row with other cells."""
    table = pd.read_csv(ROWS, comment="#", dtype=str).head(1).assign(**cells)
    table.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_the_shipped_rows_are_read(rows: list[ServingRow]) -> None:
    assert len(rows) == 24 and sum(map(is_fitted, rows)) == 12
    first = rows[0]
    assert (first.engine, first.images, first.size, first.concurrency) == ("sglang", 2, "1920x1080", 128)
    assert first.text_tokens == 37025 / 128 and first.spread == pytest.approx((3.13 - 2.59) / 3.1)
    assert first.megapixels == pytest.approx(4.1472)
    assert first.measured["mean_itl_ms"] == 808.92


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"resolution": "800p"}, "row 1: resolution should be one of 360p"),
        ({"requests": "12.5"}, "row 1: requests should be a whole number from 1 to 1e+12, not '12.5'"),
        ({"mean_itl_ms": ""}, "row 1: mean_itl_ms should be a number from 1e-09 to 1e+12, not ''"),
        ({"min_tput": "nan"}, "row 1: min_tput should be a number from 1e-09"),
        ({"min_tput": "5", "max_tput": "1"}, "row 1: request_throughput should lie between min_tput and max_tput"),
        ({"request_throughput": "1e-320"}, "row 1: request_throughput should be a number from 1e-09"),
    ],
)
def test_wrong_rows_are_one_line(tmp_path: Path, cells: dict[str, str], words: str) -> None:
    result = CliRunner().invoke(app, ["published", "--serving", str(edited(tmp_path, **cells))])
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


def test_files_that_are_no_such_table_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_text("engine,images\nvllm,2\n")
    with pytest.raises(InputError, match="no column 'resolution'"):
        read_rows(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(ROWS.read_text().splitlines()[3] + "\n")
    with pytest.raises(InputError, match="has no rows"):
        read_rows(tmp_path / "b.csv")
    with pytest.raises(InputError, match="--serving and --refit do not go together"):
        sim.published_command.PublishedCommand(ROWS, None, None, refit=True)


def test_a_row_is_a_scenario_of_its_load(rows: list[ServingRow]) -> None:
    vllm, sglang = (next(row for row in rows if row.engine == engine) for engine in ("vllm", "sglang"))
    scenario = scenario_of(vllm)
    assert scenario.policy.kind == "vllm" and scenario.workload.num_requests == 128
    workload = scenario.workload.model_dump()
    assert workload["text_tokens"] == {"kind": "fixed", "value": round(vllm.text_tokens)}
    assert workload["arrivals"]["users"] == vllm.concurrency and workload["images"][0]["count"]["value"] == vllm.images
    uniform = scenario_of(sglang).workload.model_dump()["text_tokens"]
    assert (uniform["min"] + uniform["max"]) / 2 == pytest.approx(sglang.text_tokens, abs=0.5)


def test_only_the_costs_that_a_front_end_names_are_fitted() -> None:
    content = {"ms_per_megapixel": 5, "exposed": {"ms_per_megapixel": 1, "large": LARGE}, "event_loop": True}
    front_end = FrontEnd.model_validate(content)
    paths = costs_of(front_end.model_dump())
    assert paths == [
        ("ms_per_megapixel",),
        ("exposed", "ms_per_megapixel"),
        ("exposed", "large", "ms_per_megapixel"),
    ]
    other = with_costs(front_end, dict(zip(paths, (7.0, 2.0, 3.0), strict=True)))
    assert other.exposed.large is not None and other.exposed.large.ms_per_megapixel == 3
    assert (other.ms_per_megapixel, other.exposed.large.above_megapixels, other.event_loop) == (7, 1, True)


LARGE = {"above_megapixels": 1, "of": "image", "ms_per_megapixel": 2}


def test_a_fit_finds_the_costs_that_made_the_rows(rows: list[ServingRow], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that are simulated with known costs: those of the front end, which alone decide its rate, are found."""
    known = {("ms_per_megapixel",): 80.0, ("large", "ms_per_megapixel"): 110.0}
    monkeypatch.setattr(sim.serving_fit, "DRAWS", 1)
    few = [row._replace(requests=24) for row in rows if row.engine == "vllm" and is_fitted(row)]
    front_end = with_costs(scenario_of(few[0]).front_end, known)
    made = [_simulated(row, front_end) for row in few]
    costs = fit("vllm", made).costs
    assert costs["ms_per_megapixel"] == pytest.approx(80, rel=0.03)
    assert costs["large.ms_per_megapixel"] == pytest.approx(110, rel=0.03)


def _simulated(row: ServingRow, front_end: FrontEnd) -> ServingRow:
    """By the draw that the fit takes."""
    resolved = resolve(scenario_of(row).model_copy(update={"front_end": front_end}))
    summary = simulate_resolved(Several(resolved, 1, uncertain=True).single()).summary
    return row._replace(measured={name: summary[name] for name in row.measured}, spread=0.0)


def test_rows_to_fit_to_must_be_there(rows: list[ServingRow]) -> None:
    with pytest.raises(InputError, match="no rows of vllm with 2 images and 16 users"):
        fit("vllm", [row for row in rows if not is_fitted(row)])


def test_a_fit_is_written_into_the_engines_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "vllm_server.yaml"
    shutil.copy(FOLDER / "vllm_server.yaml", copy)
    monkeypatch.setattr(sim.serving_record, "engine_file", lambda engine: tmp_path / f"{engine}_server.yaml")
    monkeypatch.setattr(sim.serving_record, "RECORD", tmp_path / "front_ends.json")
    before = copy.read_text().splitlines()
    write_fits([Fit("vllm", {"ms_per_megapixel": 12.5, "large.ms_per_megapixel": 99.0}, 0.1)], ROWS)
    front_end = Scenario.load(copy).front_end
    assert front_end.ms_per_megapixel == 12.5 and front_end.large is not None
    assert front_end.large.ms_per_megapixel == 99 and front_end.large.above_megapixels == 2.796
    changed = [pair for pair in zip(before, copy.read_text().splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1 and changed[0][1].startswith("front_end: ")
    assert '"loss": 0.1' in (tmp_path / "front_ends.json").read_text()


@pytest.fixture(scope="module")
def predictions(rows: list[ServingRow]) -> list[Prediction]:
    few = [row._replace(requests=20) for row in rows if row.concurrency == 16 and row.resolution == "720p"]
    return predict(few, jobs=1)


def test_the_table_has_measured_simulated_and_error(predictions: list[Prediction]) -> None:
    those = [p for p in predictions if p.row.engine == "vllm"]
    sheet = fidelity("vllm", those)
    assert len(sheet.headings) == 2 + 3 * 4
    first = dict(zip(sheet.headings[:5], sheet.rows[0][:5], strict=True))
    assert first["load"] == "2 x 720p, 16 users" and first[""] == "fitted"
    measured, simulated = those[0].row.measured["request_throughput"], those[0].mean("request_throughput")
    assert first["error"] == f"{100 * (simulated / measured - 1):+.1f}" and first["requests/s"] == "8.08 ± 2 %"
    labels = [row[0] for row in sheet.rows[2:]]
    assert labels == [
        "mean absolute error, predicted: 1 rows",
        "mean absolute error, predicted, under 128 users: 1 rows",
        "mean absolute error, fitted: 1 rows",
    ]
    assert mean_error(those[1:], "mean_ttft_ms") == pytest.approx(abs(those[1].error("mean_ttft_ms")))


def test_stages_are_what_one_request_takes(predictions: list[Prediction]) -> None:
    p = next(p for p in predictions if p.row.engine == "vllm" and p.row.images == 5)
    found, front_end = stages(p), p.resolved.scenario.front_end
    assert front_end.large is not None
    assert found.front_end == pytest.approx(front_end.large.ms_per_megapixel * p.row.megapixels)
    assert found.exposed == pytest.approx(front_end.exposed.ms_per_megapixel * p.row.megapixels)
    assert found.engine == found.exposed + found.encode + found.prefill
    assert found._replace(front_end=2 * found.engine).slowest == "front end"
    assert found._replace(front_end=1.05 * found.engine).slowest == "both alike"


def test_another_file_is_only_predicted(tmp_path: Path) -> None:
    path = edited(tmp_path, engine="vllm", images="1", resolution="640x480", concurrency="4", requests="10")
    result = CliRunner().invoke(app, ["published", "--serving", str(path), "--jobs", "1"], catch_exceptions=False)
    assert result.exit_code == 0 and "1 x 640x480, 4 users" in result.output
    assert "predicted: 1 rows" in result.output and "docs" not in result.output


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"engine": "vlm"}, "row 1: no scenario of engine 'vlm'; nearest: vllm"),
        ({"engine": "v" * 300}, "row 1: no scenario of engine 'vvvv"),
        ({"resolution": "1x9999"}, "row 1: "),
        ({"text_tokens_total": "40000000", "requests": "4"}, "of its 4 requests finish, on average"),
        ({"text_tokens_total": "4", "requests": "4"}, "row 1: a mean of 1 tokens, and its engine's scenario draws"),
    ],
)
def test_a_row_that_cannot_be_simulated_is_named(tmp_path: Path, cells: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as error:
        predict(read_rows(edited(tmp_path, **cells)), jobs=1)
    assert words in str(error.value)


def test_answers_of_one_token_have_no_itl(tmp_path: Path) -> None:
    """Which is no error; the other figures are predicted."""
    cells = {"engine": "vllm", "requests": "4", "concurrency": "2", "output_tokens_total": "4", "resolution": "360p"}
    (prediction,) = predict(read_rows(edited(tmp_path, text_tokens_total="1160", **cells)), jobs=1)
    sheet = fidelity("vllm", [prediction])
    assert sheet.rows[0][sheet.headings.index("ITL mean (ms)") + 2] == "-"
    assert prediction.mean("mean_ttft_ms") > 0


@pytest.mark.parametrize("name", ["page", "page.txt"])
def test_a_page_is_checked_before_anything_is_simulated(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["published", "--out", str(tmp_path / name)])
    assert result.exit_code == 2 and "should be a page, as page.md" in result.output
