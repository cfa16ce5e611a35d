"""In float64, every token of a live run is the one that transformers' `generate` gives, whatever the scheduler did."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from live_loads import Reference, random_requests, run_live, scenario, tight_engine, tiny

from executor.live import LiveRun
from executor.models import LoadedModel
from policies import POLICIES

NAMES = [policy().kind for policy in POLICIES]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return tiny()


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def answers(live: LiveRun) -> dict[int, list[int]]:
    return dict(zip(*(live.tokens[name].to_pylist() for name in ("request_id", "tokens")), strict=True))


@pytest.mark.parametrize("seed", range(24))
def test_tokens_are_those_of_generate(seed: int, model: LoadedModel, reference: Reference, tmp_path: Path) -> None:
    rng = random.Random(seed)
    requests = random_requests(rng)
    asked = scenario(requests, tight_engine(rng, requests), NAMES[seed % len(NAMES)], tmp_path)
    live = run_live(asked, model)
    finished = live.run.requests.query("status == 'finished'").request_id
    assert len(finished) or live.run.verdict == "stalled"
    given = answers(live)
    for request in requests:
        if request.id in set(finished):
            assert given[request.id] == reference.generate(request)[0], request
    state = live.world.state
    if live.run.verdict == "finished":
        assert state.pool.num_used == 0 and state.cache.held_rows == 0
