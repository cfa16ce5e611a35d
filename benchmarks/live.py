"""Speed of the live half on a CPU beside transformers' own, on one thread: one JSON line a workload.

`python benchmarks/live.py [text] [images] [host]`. All rivals take turns in the same process, five times each, with the
same weights and requests; `text` and `images` give tokens per second by the wall (median), and by the process's
processor time, which a busy neighbour disturbs less.
"""

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from executor.calibrate_host import BATCHES, host_times
from executor.live import replay
from executor.models import LoadedModel, load_model
from executor.options import Options
from executor.pictures import Pictures
from executor.prepare import prepare
from executor.prompts import Prompts
from policies.request_state import RequestState
from sim import Scenario
from sim.world import Resolved
from workloads.request import Request

MODEL = "small"  # hidden 256, four layers
ROUNDS = 5
TEXT: dict[str, Any] = {"num_requests": 16, "text_tokens": 64, "output_tokens": 32}
IMAGES: dict[str, Any] = TEXT | {"images": {"count": 2, "size": "112x112"}}
BARS = {"text": {"generate_batch": 1.5}, "images": {"generate": 3.0}}
HOST_BAR_MS = 2.0


class Rivals:
    """The same requests through our executor and through transformers."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.options = Options(device="cpu", model=MODEL)
        self.ours = _load()
        self.theirs = _load()  # weights of the same seed
        self.theirs.model.set_attn_implementation("sdpa")
        self.checked = self._checked(workload)
        self.requests = list(self.checked.scenario.workload.requests(seed=0, model=self.checked.scenario.model))
        self.prompts = Prompts(self.theirs, 0)
        self.pictures = Pictures(self.theirs.shape, 0, self.theirs.device, self.theirs.dtype)
        self.num_tokens = sum(request.output_tokens for request in self.requests)
        self.config = GenerationConfig(
            max_new_tokens=workload["output_tokens"], do_sample=False, eos_token_id=None, pad_token_id=0
        )

    def _checked(self, workload: dict[str, Any]) -> Resolved:
        count = workload["num_requests"]
        described = {
            "model": MODEL,
            "profile": "cpu/small",
            "workload": {"kind": "synthetic", "arrivals": {"kind": "at_once"}, **workload},
            "engine": {
                "max_num_seqs": count,
                "max_num_batched_tokens": 1024,
                "num_kv_blocks": 20 * count,
                "encoder_max_num_tokens": 4096,
                "encoder_cache_rows": 1024,
            },
            "policy": {"kind": "head_of_line"},
        }
        return prepare(Scenario.model_validate(described), self.ours, self.options).checked

    def executor(self) -> list[list[int]]:
        """The whole of a replay: static memory, warming up, prompts, pixels, records."""
        tokens = replay(self.checked, self.ours, self.options).tokens
        return [answer.as_py() for answer in tokens["tokens"]]

    def generate_batch(self) -> list[list[int]]:
        """Continuous batching with a cache as large as needed: left to itself, it fills the memory with one."""
        prompts = [self._ids(request).tolist() for request in self.requests]
        cache = ContinuousBatchingConfig(page_size=128, num_blocks=2 * len(prompts), max_batch_tokens=1024)
        result = self.theirs.model.generate_batch(
            prompts, self.config, cache, warmup=False, max_new_tokens=self.config.max_new_tokens
        )
        return [answer.generated_tokens for _, answer in sorted(result.items(), key=lambda pair: _number(pair[0]))]

    @torch.inference_mode()
    def generate(self) -> list[list[int]]:
        """One request after the other: no released transformers batches requests with images."""
        return [self._generate(request) for request in self.requests]

    def _generate(self, request: Request) -> list[int]:
        ids = self._ids(request)[None]
        given: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
        if request.items:
            keys = RequestState(request).keys
            pixels = [self.pictures.patches(item, key) for item, key in zip(request.items, keys, strict=True)]
            given["pixel_values"] = torch.cat(pixels)
            given["image_grid_thw"] = torch.tensor([item.grid for item in request.items])
            given["mm_token_type_ids"] = (ids == self.theirs.config.image_token_id).int()
        answer = self.theirs.model.generate(ids, generation_config=self.config, **given)
        return answer[0, ids.shape[1] :].tolist()

    def _ids(self, request: Request) -> torch.Tensor:
        return torch.from_numpy(self.prompts.sequence(request).ids[: request.prompt_tokens])


def _load() -> LoadedModel:
    return load_model(MODEL, torch.device("cpu"), torch.float32)


def _number(id: str) -> int:
    return int(id.rsplit("_", 1)[-1])


def compare(name: str, workload: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Rivals in turn, a first round uncounted; the ratios are ours over theirs."""
    rivals = Rivals(workload)
    wall: dict[str, list[float]] = {rival: [] for rival in names}
    cpu: dict[str, list[float]] = {rival: [] for rival in names}
    answers: dict[str, list[list[int]]] = {}
    for number in range(ROUNDS + 1):
        for rival in names:
            answers[rival], seconds, own = _timed(getattr(rivals, rival))
            if number:
                wall[rival].append(rivals.num_tokens / seconds)
                cpu[rival].append(rivals.num_tokens / own)
    ours = answers.pop("executor")
    return {
        "workload": name,
        "tokens": rivals.num_tokens,
        "tokens_per_second": _medians(wall),
        "tokens_per_cpu_second": _medians(cpu),
        "ratio": _ratios(wall),
        "ratio_cpu": _ratios(cpu),
        "bar": BARS[name],
        "same_answers": {rival: sum(map(list.__eq__, ours, theirs)) for rival, theirs in answers.items()},
    }


def _timed(run: Callable[[], list[list[int]]]) -> tuple[list[list[int]], float, float]:
    start, own = time.perf_counter(), time.process_time()
    answers = run()
    return answers, time.perf_counter() - start, time.process_time() - own


def _medians(rates: dict[str, list[float]]) -> dict[str, float]:
    return {rival: round(median(values), 1) for rival, values in rates.items()}


def _ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    """Medians of the ratios round by round: what disturbs one round disturbs all its rivals."""
    ours = rates["executor"]
    return {
        rival: round(median(a / b for a, b in zip(ours, theirs, strict=True)), 2)
        for rival, theirs in rates.items()
        if rival != "executor"
    }


def host() -> dict[str, Any]:
    """Planning and batch assembly, milliseconds an iteration by the thread's clock."""
    options = Options(device="cpu", model=MODEL, clock="thread_time")
    loaded = _load()
    times = {decodes: host_times(loaded, decodes, options) for decodes in BATCHES}
    figures = {str(decodes): {"mean": round(mean(ms), 3), "max": round(max(ms), 3)} for decodes, ms in times.items()}
    return {"workload": "host", "ms_by_decodes": figures, "bar": {"64": HOST_BAR_MS}}


WORKLOADS: dict[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: compare("text", TEXT, ["executor", "generate_batch", "generate"]),
    "images": lambda: compare("images", IMAGES, ["executor", "generate"]),
    "host": host,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for name in names or WORKLOADS:
        print(json.dumps(WORKLOADS[name]()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
