"""In float64, every token of a live run is the one that transformers' `generate` gives, whatever the scheduler did."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from live_loads import Recorded, Reference, random_requests, run_recorded, scenario, tight_engine, tiny

from policies import POLICIES
from workloads.request import MultimodalItem, Request

NAMES = [policy().kind for policy in POLICIES]
SEEDS = range(40)

model = cache(tiny)
reference = cache(Reference)


def load(seed: int, folder: Path) -> tuple[list[Request], Recorded]:
    rng = random.Random(seed)
    requests = random_requests(rng)
    asked = scenario(requests, tight_engine(rng, requests), NAMES[seed % len(NAMES)], folder)
    return requests, run_recorded(asked, model())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[list[Request], Recorded]]:
    return {seed: load(seed, tmp_path_factory.mktemp(str(seed))) for seed in SEEDS}


def assert_exact(requests: list[Request], recorded: Recorded) -> int:
    """Every finished answer, token for token, its logits to a millionth of their spread; how many answers that were."""
    table = recorded.live.run.requests
    finished = set(table[table.status == "finished"].request_id)
    for request in requests:
        if request.id in finished:
            tokens, logits = reference().generate(request)
            assert recorded.answers[request.id] == tokens, f"{request} answers otherwise"
            error = (torch.stack(recorded.logits[request.id]) - logits).abs().max() / logits.std()
            assert error < 1e-6, f"logits of {request} are off by {error:.1e} of their spread"
    return len(finished)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_are_those_of_generate(seed: int, recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    requests, run = recorded[seed]
    assert assert_exact(requests, run) == len(requests) or run.live.run.verdict == "stalled"


def test_nothing_leaks(recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    for _, run in recorded.values():
        state, finished = run.live.world.state, run.live.run.verdict == "finished"
        assert not finished or (state.pool.num_used == 0 and state.cache.held_rows == 0)
    assert sum(run.live.run.verdict == "finished" for _, run in recorded.values()) >= 20


def test_every_hard_case_occurs(recorded: dict[int, tuple[list[Request], Recorded]]) -> None:
    seen = sum((run.seen for _, run in recorded.values()), Counter())
    assert min(seen[case] for case in ("mixed", "inside an image", "preempted", "hits")) >= 10, seen


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "sglang"}, {"encoder_cache_rows": 20}),  # less than an iteration reads, and than some items have
    ({"kind": "sglang", "enable_mixed_chunk": True, "new_token_ratio": 0}, {"encoder_cache_rows": 30}),
    ({"kind": "hf_rows", "scheduler": "prefill_first"}, {}),
    ({"kind": "hf_rows", "keep_inputs": True}, {}),
    ({"kind": "trt_main", "encoder_scheduling_policy": "EAGER"}, {}),
    ({"kind": "trt_chunk_demand", "encoder_scheduling_policy": "EAGER"}, {"encoder_cache_rows": 40}),
    ({"kind": "trt_chunk_demand", "use_kv_cache_manager_v2": True}, {"encoder_cache_rows": 32}),
]


@pytest.mark.parametrize("seed", [3, 5, 12])
@pytest.mark.parametrize("policy, engine", OPTIONS)
def test_options_of_engines_change_no_token(
    policy: dict[str, Any], engine: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    """Caches that hold less than a request, outputs that are taken back or evicted between two chunks."""
    rng = random.Random(seed)
    requests = random_requests(rng)
    tight = {**tight_engine(rng, requests), **engine}
    run = run_recorded(scenario(requests, tight, policy, tmp_path), model())
    assert assert_exact(requests, run) == len(requests) or run.live.run.verdict == "stalled"


@pytest.mark.parametrize("policy", ["vllm", "vllm_priority"])
def test_a_decode_that_was_held_back_goes_on_as_it_would_have(policy: str, tmp_path: Path) -> None:
    """Rows for one image: 1 stops before its second, so 2 starts and decodes, until 1 takes all that 0 leaves."""
    images = tuple(
        MultimodalItem(key, "image", (1, 4, 6), offset, 6, 24, 6, 24 * 196) for key, offset in (("a", 2), ("b", 10))
    )
    requests = [Request(0, 0, 3, 12), Request(1, 0, 40, 4, images), Request(2, 0, 3, 8)]
    engine = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "num_kv_blocks": 50, "encoder_cache_rows": 6}
    run = run_recorded(scenario(requests, engine, policy, tmp_path), model())
    assert assert_exact(requests, run) == 3 and run.seen["held back"] == 1
