"""Iterations outside the range of the timings: counted as one by one, told once a run, the same on every path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import run
from sim.beyond import Beyond
from sim.figures import Range
from sim.profiles import PROFILES

TIMED = Range(
    images=(1, 4),
    encoder_tokens_per_image=(64, 1024),
    encoder_tokens=(64, 2048),
    chunk=(16, 512),
    cached=(0, 1000),
    decodes=(2, 8),
    context_per_decode=(10, 100),
)
INSIDE = ([(1024, 2 * 512**2)], [(100, 1000), (200, 0)], 4, 400)


@pytest.mark.parametrize(
    ("calls", "chunks", "decodes", "context", "places"),
    [
        (*INSIDE, []),
        ([], [], 0, 0, []),
        ([(5 * 64, 5 * 64**2)], [], 0, 0, ["images of an encoder call up to 5 (timed: 1 to 4)"]),
        ([(1100, 1100**2)], [], 0, 0, ["encoder tokens of an image up to 1,100 (timed: 64 to 1,024)"]),
        ([(126, 126 * 63)], [], 0, 0, ["encoder tokens of an image from 63 (timed: 64 to 1,024)"]),
        ([(3072, 3 * 1024**2)], [], 0, 0, ["encoder tokens of a call up to 3,072 (timed: 64 to 2,048)"]),
        ([], [(300, 0), (300, 0)], 0, 0, ["tokens prefilled up to 600 (timed: 16 to 512)"]),
        ([], [(15, 0)], 0, 0, ["tokens prefilled from 15 (timed: 16 to 512)"]),
        ([], [(100, 0), (100, 1001)], 0, 0, ["tokens cached before a chunk up to 1,001 (timed: 0 to 1,000)"]),
        ([], [(100, 0)], 9, 900, ["decodes up to 9 (timed: 2 to 8)"]),
        ([], [(100, 0)], 1, 9, ["decodes from 1 (timed: 2 to 8)", "context of a decode from 9 (timed: 10 to 100)"]),
    ],
)
def test_each_figure_is_looked_at(
    calls: list[tuple[int, int]], chunks: list[tuple[int, int]], decodes: int, context: int, places: list[str]
) -> None:
    beyond = Beyond(TIMED)
    beyond.iteration(*INSIDE)
    beyond.iteration(calls, chunks, decodes, context)
    assert beyond.places() == places and beyond.num_iterations == bool(places)


RUNS = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 12), st.integers(1, 150)), max_size=5)


@given(RUNS)
def test_runs_of_decodes_are_counted_as_one_by_one(runs: list[tuple[int, int, int]]) -> None:
    together, single = Beyond(TIMED), Beyond(TIMED)
    columns = np.array([(count, b, b * context) for count, b, context in runs], np.int64).reshape(-1, 3)
    together.decodes(*columns.T)
    for count, b, context in runs:
        for k in range(count):
            single.iteration([], [], b, b * (context + k))
    assert together.num_iterations == single.num_iterations
    assert (together.least, together.most) == (single.least, single.most)


def narrow(folder: Path, **ranges: Any) -> str:
    """The H200's profile, its timings as if they lay nearer together."""
    content = json.loads((PROFILES / "h200" / "qwen3-vl-8b-sglang-tp1.json").read_text())
    content["range"] |= ranges
    path = folder / "narrow.json"
    path.write_text(json.dumps(content))
    return str(path)


BASE = "tests/data/scenario.yaml"


def told(profile: str, **changes: Any) -> list[str]:
    done = run(BASE, {"profile": profile, "policy.kind": "fcfs", **changes})
    return [note for note in done.notes if "priced outside" in note]


def test_nothing_is_said_of_a_run_inside() -> None:
    assert told("h200/qwen3-vl-8b") == []


def test_a_run_tells_once_how_many_and_how_far(tmp_path: Path) -> None:
    """As counted from its table: of decodes by their mean context, of prefill by its tokens."""
    profile = narrow(tmp_path, decodes=[1, 3], chunk=[1, 400], context_per_decode=[1, 900])
    done = run(BASE, {"profile": profile, "policy.kind": "fcfs"})
    rows = done.iterations
    contexts = rows.context_tokens / rows.num_decodes.clip(lower=1)
    outside = (rows.num_decodes > 3) | (rows.num_prefill_tokens > 400) | (contexts > 900)
    line = done.notes[-1]
    assert 0 < outside.sum() < len(rows)
    assert line.startswith(f"{outside.sum():,} of {len(rows):,} iterations priced outside the timings of {profile}: ")
    assert f"decodes up to {rows.num_decodes.max()} (timed: 1 to 3)" in line
    assert f"tokens prefilled up to {rows.num_prefill_tokens.max():,} (timed: 1 to 400)" in line
    assert f"context of a decode up to {contexts.max():,.0f} (timed: 1 to 900)" in line


@pytest.mark.parametrize(
    "changes", [{"simulation.fast_path": False}, {"measure.iterations": False}], ids=["stepwise", "without a table"]
)
def test_every_path_tells_the_same(tmp_path: Path, changes: dict[str, Any]) -> None:
    profile = narrow(tmp_path, decodes=[1, 3], images=[1, 1], encoder_tokens_per_image=[64, 500], cached=[0, 50])
    assert told(profile) == told(profile, **changes) != []


def test_of_pools_each_profile_is_told_of(tmp_path: Path) -> None:
    """An encode engine prices no prefill, whatever it hands on; engines of one profile are counted together."""
    profile = narrow(tmp_path, encoder_tokens_per_image=[64, 100], chunk=[1, 2])
    pools = {
        "encode": {"engines": 2, "profile": profile},
        "prefill": {"engines": 1},
        "link": {"gigabytes_per_second": 50},
    }
    line, *more = told("h200/qwen3-vl-8b", pools=pools)
    assert not more and profile in line and "encoder tokens of an image up to" in line and "prefilled" not in line
