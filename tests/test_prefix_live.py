"""Prefix caching on the device: blocks that requests share hold the very keys and values that each would compute."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from live_loads import Recorded, alike_requests, run_live, run_recorded, scenario, tight_engine, tiny
from test_exactness import assert_exact, model

from executor.prompts import Prompts
from policies import POLICIES
from policies.block_keys import BlockKeys
from policies.prefix_pool import PrefixPool
from policies.prefix_state import CachingState
from policies.request_state import RequestState
from sim import Scenario
from sim.plan_log import PlanLine, parsed
from sim.run import simulate
from sim.twin import rerun, twin
from sim.world import resolve
from workloads.request import MultimodalItem, Request

NAMES = [policy().kind for policy in POLICIES]
SEEDS = range(64)
single = cache(lambda: tiny(torch.float32))


def asked(seed: int, folder: Path, policy: str) -> tuple[list[Request], Scenario]:
    rng = random.Random(seed)
    requests = alike_requests(rng)
    engine = {**tight_engine(rng, requests), "enable_prefix_caching": True, "encoder_cache_reuse": rng.random() < 0.8}
    return requests, scenario(requests, engine, policy, folder)


def load(seed: int, folder: Path) -> tuple[list[Request], Recorded]:
    requests, given = asked(seed, folder, NAMES[seed % len(NAMES)])
    return requests, run_recorded(given, model())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[list[Request], Recorded]]:
    evicted: Counter[str] = Counter()
    forget = PrefixPool._forget

    def counted(self: PrefixPool, block: int) -> None:
        evicted["evicted"] += block in self._keys
        forget(self, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrefixPool, "_forget", counted)
        runs = {seed: load(seed, tmp_path_factory.mktemp(str(seed))) for seed in SEEDS}
    runs[0][1].seen.update(evicted)
    return runs


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_are_those_of_generate(seed: int, recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    requests, run = recorded[seed]
    assert assert_exact(requests, run) == len(requests) or run.live.run.verdict == "stalled"


def seen(requests: list[Request], run: Recorded) -> Counter[str]:
    """What became of hits: of whom, up to where."""
    found: Counter[str] = Counter(run.seen)
    preempted: set[int] = set()
    for line in (PlanLine.model_validate_json(text) for text in run.live.plans):
        preempted |= {*line.preempted}
        for id, tokens in line.hits:
            found["prefix hits"] += 1
            found["after a preemption"] += id in preempted
            found["past the prompt"] += tokens > requests[id].prompt_tokens
            for item in requests[id].items:
                found["up to the middle of an image"] += item.offset < tokens < item.offset + item.length
                found["past an image"] += item.offset + item.length <= tokens
    return found


def test_every_hard_case_occurs(recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    cases = sum((seen(*recorded[seed]) for seed in SEEDS), Counter())
    hits = ("prefix hits", "after a preemption", "up to the middle of an image", "past an image")
    assert min(cases[case] for case in (*hits, "evicted", "mixed", "inside an image", "preempted")) >= 10, cases
    assert cases["past the prompt"] >= 5, cases


def test_nothing_leaks(recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    for _, run in recorded.values():
        state = run.live.world.state
        if run.live.run.verdict == "finished":
            assert isinstance(state, CachingState)
            assert state.pool.num_used == 0 and state.cache.held_rows == 0
            assert not any(state.prefixes.pool.refs)
    assert sum(run.live.run.verdict == "finished" for _, run in recorded.values()) >= 30


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_models_clock_gives_the_simulation(policy: str, seed: int, tmp_path: Path) -> None:
    live = run_live(asked(seed, tmp_path, policy)[1], single())
    again = simulate(live.run.scenario)
    pd.testing.assert_frame_equal(live.run.requests, again.requests, check_exact=True)
    pd.testing.assert_frame_equal(live.run.iterations, again.iterations, check_exact=True)
    assert live.plans == rerun(resolve(live.run.scenario)).texts


@pytest.mark.parametrize("policy", NAMES)
def test_measured_times_fed_back_give_the_same_run(policy: str, tmp_path: Path) -> None:
    live = run_live(asked(5, tmp_path, policy)[1], single(), clock="wall")
    again = twin(resolve(live.run.scenario), parsed(live.plans, tmp_path))
    assert again.difference is None and again.texts == live.plans
    pd.testing.assert_frame_equal(live.run.requests, again.run.requests, check_exact=True)


@pytest.mark.parametrize("from_text", [False, True])
def test_blocks_of_one_name_have_the_same_tokens_positions_and_pixels(from_text: bool) -> None:
    """And names differ wherever a token does."""
    prompts, alike, otherwise = Prompts(model(), 0), 0, 0
    if from_text:
        prompts._text = np.random.default_rng(0).integers(300, size=1000)
    for seed in range(30):
        for one, other in combinations(alike_requests(random.Random(seed)), 2):
            keys, told = [BlockKeys(r, 4) for r in (one, other)], [prompts.sequence(r) for r in (one, other)]
            for index in range(min(one.prompt_tokens, other.prompt_tokens) // 4):
                mine, theirs = (key.key(index) for key in keys)
                end = 4 * (index + 1)
                same = all((t.ids[:end] == told[0].ids[:end]).all() for t in told)
                same &= all((t.positions[:, :end] == told[0].positions[:, :end]).all() for t in told)
                same &= contents(one, end) == contents(other, end)
                assert same == (mine == theirs)
                alike, otherwise = alike + same, otherwise + (not same)
    assert min(alike, otherwise) > 100


def contents(request: Request, end: int) -> list[object]:
    """Names of the pixels that tokens before `end` stand for."""
    keys = RequestState(request).keys
    return [key for key, item in zip(keys, request.items, strict=True) if item.offset < end]


@pytest.mark.parametrize("on", [False, True])
def test_equal_text_with_another_image_answers_otherwise(on: bool, tmp_path: Path) -> None:
    """faults.md 36: the second request finds all before the image, the third the image as well."""
    items = [(MultimodalItem(key, "image", (1, 6, 6), 17, 9, 36, 9, 7056),) for key in ("a", "b", "a")]
    tokens = 17 + 9 + 15
    requests = [
        Request(id, 10**9 * id, tokens, 6, own, (7, 8, 9, 10), hash_block_size=16) for id, own in enumerate(items)
    ]
    engine = {"block_size": 4, "num_kv_blocks": 100, "enable_prefix_caching": on}
    run = run_recorded(scenario(requests, engine, "fcfs", tmp_path), model())
    assert assert_exact(requests, run) == 3
    assert run.answers[0] == run.answers[2] != run.answers[1]
    cached = [0, 16, (tokens - 1) // 4 * 4] if on else [0, 0, 0]
    assert run.live.run.requests.num_cached_tokens.tolist() == cached
    assert run.live.run.requests.num_encodes.sum() == 2
