"""Measures what planning and batch assembly take on the host, in short replays of small requests."""

from __future__ import annotations

from statistics import mean
from typing import Any

import pandas as pd

from executor.calibrate_file import Host
from executor.live import replay
from executor.models import LoadedModel
from executor.options import Options
from sim.scenario import Scenario
from sim.world import resolve

BATCHES = (1, 16, 64)
TYPICAL = 16  # seats in the replay that a profile's figure comes from
WAITING = 4  # requests in the queue, so that the policy is asked in every iteration
PROMPT, ANSWER = 16, 40
SETTLED = 4  # iterations at the start that still warm up
BLOCK_SIZE = 16
NOBODY = "h200/qwen2-vl-7b"  # a scenario must name prices, which nobody asks for here


def host_of(loaded: LoadedModel, options: Options) -> Host:
    """The mean over a replay of all kinds of iterations, and what decodes alone take, to be told beside it."""
    table = _replay(loaded, options, TYPICAL, _all_kinds())
    alone = {decodes: mean(host_times(loaded, decodes, options)) for decodes in BATCHES}
    figures = ", ".join(f"{ms:.3f} at {decodes}" for decodes, ms in alone.items())
    how = f"mean of a short replay with up to {TYPICAL} decodes, chunks and images; decodes alone: {figures}"
    return Host(mean(_milliseconds(table)), how)


def host_times(loaded: LoadedModel, decodes: int, options: Options) -> list[float]:
    """Milliseconds of host time in each iteration of so many decodes and nothing else, the policy asked each time."""
    workload = {"num_requests": decodes + WAITING, "text_tokens": PROMPT, "output_tokens": ANSWER}
    table = _replay(loaded, options, decodes, workload)
    return _milliseconds(table[(table.num_decodes == decodes) & (table.num_prefill_tokens == 0)])


def _all_kinds() -> dict[str, Any]:
    return {
        "num_requests": 4 * TYPICAL,
        "text_tokens": {"kind": "uniform", "min": PROMPT, "max": 3 * PROMPT},
        "output_tokens": {"kind": "uniform", "min": 2, "max": ANSWER},
        "images": {"count": {"kind": "choice", "values": [0, 1, 2]}, "size": "56x56"},
    }


def _milliseconds(table: pd.DataFrame) -> list[float]:
    return [float(seconds) * 1e3 for seconds in table.host[SETTLED:]]


def _replay(loaded: LoadedModel, options: Options, seats: int, workload: dict[str, Any]) -> pd.DataFrame:
    """The iterations of one run, all requests sent at once."""
    description: dict[str, Any] = {
        "name": "host",
        "model": loaded.shape,
        "profile": NOBODY,
        "workload": {"kind": "synthetic", "arrivals": {"kind": "at_once"}, **workload},
        "engine": {
            "max_num_seqs": seats,
            "max_num_batched_tokens": max(64, seats * PROMPT),
            "block_size": BLOCK_SIZE,
            "num_kv_blocks": (seats + WAITING) * -(-2 * (3 * PROMPT + ANSWER) // BLOCK_SIZE),
            "encoder_max_num_items": 2,
            "encoder_cache_rows": 64,
        },
        "policy": {"kind": "head_of_line"},
    }
    run = replay(resolve(Scenario.model_validate(description)), loaded, options).run
    if run.partial:  # the loop ends soundly when interrupted, and says so
        raise KeyboardInterrupt
    return run.iterations
