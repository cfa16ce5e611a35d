"""Measures what planning and batch assembly take on the host: a short replay of text, decodes in full batches."""

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
TYPICAL = 16  # decodes: a profile has one figure for all batches
WAITING = 4  # requests in the queue, so that the policy is asked in every iteration
PROMPT, ANSWER = 16, 40
SETTLED = 4  # iterations at the start that still warm up
NOBODY = "h200/qwen2-vl-7b"  # a scenario must name prices, which nobody asks for here


def host_times(loaded: LoadedModel, decodes: int, options: Options) -> list[float]:
    """Milliseconds of host time in each iteration of so many decodes and nothing else."""
    asked = resolve(_scenario(loaded, decodes))
    run = replay(asked, loaded, options).run
    if run.partial:  # the loop ends soundly when interrupted, and says so
        raise KeyboardInterrupt
    return _milliseconds(run.iterations, decodes)


def host_of(loaded: LoadedModel, options: Options) -> Host:
    """Means at BATCHES; the one at TYPICAL decodes goes into the profile."""
    means = {decodes: mean(host_times(loaded, decodes, options)) for decodes in BATCHES}
    figures = ", ".join(f"{ms:.3f} at {decodes}" for decodes, ms in means.items())
    return Host(means[TYPICAL], f"mean of a short replay at {TYPICAL} decodes, the policy asked each time ({figures})")


def _milliseconds(table: pd.DataFrame, decodes: int) -> list[float]:
    full = table[(table.num_decodes == decodes) & (table.num_prefill_tokens == 0)]
    return [float(seconds) * 1e3 for seconds in full.host[SETTLED:]]


def _scenario(loaded: LoadedModel, decodes: int) -> Scenario:
    blocks = -(-(PROMPT + ANSWER) // 16)
    description: dict[str, Any] = {
        "name": "host",
        "model": loaded.shape,
        "profile": NOBODY,
        "workload": {
            "kind": "synthetic",
            "num_requests": decodes + WAITING,
            "arrivals": {"kind": "at_once"},
            "text_tokens": PROMPT,
            "output_tokens": ANSWER,
        },
        "engine": {
            "max_num_seqs": decodes,
            "max_num_batched_tokens": max(256, decodes * PROMPT),
            "num_kv_blocks": (decodes + WAITING) * blocks,
            "encoder_cache_rows": 1,
        },
        "policy": {"kind": "head_of_line"},
    }
    return Scenario.model_validate(description)
