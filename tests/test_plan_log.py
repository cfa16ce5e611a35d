"""The plan log: what it holds, that equal plans are equal files, and that a broken file is named in one line."""

import gzip
import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from noisy_runs import NoisyWorld, live_run, small

from policies.plan import IterationPlan
from sim.plan_log import PlanLine, read_plans, write_plans
from sim.world import resolve
from workloads.errors import InputError


def test_what_is_written_is_read_again_and_equal_plans_are_equal_files(tmp_path: Path) -> None:
    _, texts = live_run(small())
    for name in ("one", "two"):
        write_plans(texts, tmp_path / f"{name}.gz")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert [line.text() for line in read_plans(tmp_path / "one.gz")] == texts
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()).decode() == "".join(f"{text}\n" for text in texts)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []


def test_lines_agree_with_the_iterations_table() -> None:
    run, texts = live_run(small(engine={"capacity": "max_utilization", "num_kv_blocks": 80}))
    lines = [PlanLine.model_validate_json(text) for text in texts]
    rows = run.iterations.to_dict("records")
    assert run.requests["num_preemptions"].sum() == sum(len(line.preempted) for line in lines) > 0
    cohort: list[int] = []
    for line, row in zip(lines, rows, strict=True):
        if line.num_decodes:
            cohort = cohort if line.decode is None else line.decode
            assert len(cohort) == line.num_decodes
        assert (line.num_decodes, line.context_tokens) == (row["num_decodes"], row["context_tokens"])
        assert sum(tokens for _, tokens, _ in line.prefill) == row["num_prefill_tokens"]
        assert sum(t * h * w for _, _, (t, h, w) in line.encode) == row["encoder_tokens"]
        assert [ns / 1e9 for ns in line.elapsed_ns] == [row["host"], row["encode"], row["compute"]]


def test_cached_tokens_are_those_before_the_chunk() -> None:
    _, texts = live_run(small(engine={"max_num_batched_tokens": 60}))
    computed: dict[int, int] = {}
    chunks = [chunk for text in texts for chunk in PlanLine.model_validate_json(text).prefill]
    for request, tokens, cached in chunks:
        assert cached == computed.get(request, 0)
        computed[request] = cached + tokens
    assert len(chunks) > len(computed)


def test_a_cohort_is_written_only_where_it_changes() -> None:
    _, texts = live_run(small())
    cohorts = [json.loads(text).get("decode") for text in texts if "num_decodes" in text]
    told = [cohort for cohort in cohorts if cohort is not None]
    assert len(told) < len(cohorts) / 3
    assert all(one != other for one, other in pairwise(told))


def test_only_one_iteration_at_a_time_is_logged() -> None:
    checked = resolve(small())
    backend = NoisyWorld(checked, 1).backend
    with pytest.raises(AssertionError, match="one iteration at a time"):
        backend.launch(IterationPlan(), 2, 0)


_zipped = partial(gzip.compress, mtime=0)  # contents are in the names of tests, which must not change with the time
GOOD = '{"iteration":0,"elapsed_ns":[1,2,3]}'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_zipped(GOOD.encode())[:-9], "is not a whole gzip file"),
        (GOOD.encode(), "is not a whole gzip file: Not a gzipped file"),
        (b"", "is not a whole gzip file: it is empty"),
        (_zipped(b"\xff\xfe"), "is not UTF-8 text"),
        (_zipped(b"{"), "line 1: Invalid JSON"),
        (_zipped(f"{GOOD}\n{GOOD}\n".encode()), "line 2: iteration 0 is out of order"),
        (_zipped(b'{"iteration":0,"elapsed_ns":[1,2]}'), "line 1: elapsed_ns.2: Field required"),
        (_zipped(b'{"iteration":0,"elapsed_ns":[1,2,-3]}'), "line 1: elapsed_ns.2: Input should be greater"),
        (_zipped(b'{"iteration":0,"color":"red"}'), "line 1: color: Extra inputs are not permitted"),
    ],
)
def test_broken_files_are_named_in_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_plans(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_a_missing_file_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"plans\.jsonl\.gz: cannot be read: No such file"):
        read_plans(tmp_path / "plans.jsonl.gz")
