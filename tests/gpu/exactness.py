"""Logits of a live run beside those of transformers' `generate`, both beside float32, with images, chunks and graphs.

In bfloat16 two right computations differ, so the bar is: not further from float32 than `generate` is, times 1.5.
"""

import sys
from typing import Any, NamedTuple

import torch
from common import Place, place, report
from torch import Tensor

from executor.live import LiveWorld
from executor.models import LoadedModel, load_model
from executor.options import Options
from executor.pictures import Pictures
from executor.prepare import prepare
from executor.prompts import Prompts
from policies.request_state import RequestState
from sim import Scenario
from sim.run import serve
from workloads.request import Request

SIZES = [(224, 224), (448, 308), (140, 700)]
BAR = 1.5


def scenario(where: Place) -> Scenario:
    workload = {
        "kind": "synthetic",
        "num_requests": 4 if where.rehearsal else 10,
        "arrivals": {"kind": "poisson", "rate": 50},
        "text_tokens": {"kind": "lognormal", "median": 60, "sigma": 0.6, "max": 300},
        "output_tokens": 8 if where.rehearsal else 24,
        "images": {
            "count": {"kind": "choice", "values": [0, 1, 2], "weights": [1, 2, 1]},
            "size": {"kind": "choice", "values": [f"{w}x{h}" for w, h in SIZES], "weights": [1, 1, 1]},
        },
    }
    engine = {"max_num_seqs": 8, "max_num_batched_tokens": 200, "num_kv_blocks": 1000}
    return Scenario.model_validate(
        {"name": "exactness", "model": "qwen2-vl-7b", "profile": "h200/qwen2-vl-7b", "workload": workload,
         "engine": engine, "policy": {"kind": "head_of_line"}}
    )  # fmt: skip


def live_logits(where: Place, loaded: LoadedModel, **more: Any) -> tuple[list[Request], dict[int, Tensor], list[str]]:
    """Requests, the logits [tokens, vocabulary] that their answers were chosen by, and the run's notes."""
    options = Options(device=str(where.device), model=where.model, dtype=str(where.dtype)[6:], **more)
    checked = prepare(scenario(where), loaded, options).checked
    world = LiveWorld(checked, loaded, options)
    backend, rows = world.device_backend, {}
    sampler, append = backend.sampler, backend._append
    seen: list[Tensor] = []

    def sampled(logits: Tensor) -> Any:
        seen.append(logits.float().cpu().clone())  # the graphs use their buffer again
        return sampler(logits)

    def appended(batch: Any, *results: Any) -> None:
        for request, row in zip(batch.owners, seen.pop(), strict=True):
            rows.setdefault(request.id, []).append(row)
        append(batch, *results)

    backend.sampler, backend._append = sampled, appended
    serve(world, checked.notes)
    requests = list(checked.scenario.workload.requests(seed=checked.scenario.seed, model=checked.scenario.model))
    return requests, {id: torch.stack(found) for id, found in rows.items()}, list(world.notes)


class Theirs:
    """The same weights, prompts and pixels through transformers itself."""

    def __init__(self, where: Place, dtype: torch.dtype) -> None:
        self.loaded = load_model(where.model, where.device, where.dtype)
        self.loaded.model.set_attn_implementation("sdpa")
        self.prompts = Prompts(self.loaded, 0)
        self.pictures = Pictures(self.loaded.shape, 0, where.device, where.dtype)
        self.loaded.model.to(dtype)  # after the weights were rounded: the same numbers, computed with more digits
        self.dtype = dtype

    def _inputs(self, request: Request) -> dict[str, Tensor]:
        device, keys = self.loaded.device, RequestState(request).keys
        ids = torch.from_numpy(self.prompts.sequence(request).ids[None, : request.prompt_tokens]).to(device)
        inputs = {"input_ids": ids}
        if request.items:
            patches = [self.pictures.patches(item, key) for item, key in zip(request.items, keys, strict=True)]
            inputs["pixel_values"] = torch.cat(patches).to(self.dtype)
            inputs["image_grid_thw"] = torch.tensor([item.grid for item in request.items], device=device)
            inputs["mm_token_type_ids"] = (ids == self.loaded.config.image_token_id).int()
        return inputs

    @torch.inference_mode()
    def generate(self, request: Request) -> tuple[list[int], Tensor]:
        inputs = self._inputs(request)
        result = self.loaded.model.generate(
            **inputs, attention_mask=torch.ones_like(inputs["input_ids"]), max_new_tokens=request.output_tokens,
            do_sample=False, eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        return result.sequences[0, request.prompt_tokens :].tolist(), torch.cat(result.logits).float().cpu()

    @torch.inference_mode()
    def forced(self, request: Request, answer: list[int]) -> Tensor:
        """Logits of that answer's tokens, in one forward."""
        inputs, config = self._inputs(request), self.loaded.config
        more = torch.tensor([answer[:-1]], device=self.loaded.device, dtype=torch.int64)
        inputs["input_ids"] = torch.cat([inputs["input_ids"], more], 1)
        if request.items:
            ids = inputs["input_ids"].clone()
            ids[:, request.prompt_tokens :] = -1  # an answer's placeholder is a word like any other
            inputs["mm_token_type_ids"] = (ids == config.image_token_id).int()
        logits = self.loaded.model(**inputs, use_cache=False).logits[0, request.prompt_tokens - 1 :]
        return logits.float().cpu()


class Answer(NamedTuple):
    """Of `generate`, with its logits, and those of the same tokens in float32."""

    tokens: list[int]
    logits: Tensor
    exact: Tensor


def answers_to(requests: list[Request], where: Place) -> dict[int, Answer]:
    reference = Theirs(where, where.dtype)
    generated = {request.id: reference.generate(request) for request in requests}
    del reference
    exact = Theirs(where, torch.float32)
    return {r.id: Answer(*generated[r.id], exact.forced(r, generated[r.id][0])) for r in requests}


def figures_of(ours: dict[int, Tensor], answers: dict[int, Answer]) -> dict[str, float]:
    """Of all logits up to where the answers part: mean distances of the worst request, in parts of their spread."""
    figures = {"tokens": 0, "same": 0, "ours_from_float32": 0.0, "generate_from_float32": 0.0, "apart": 0.0}
    for id, (tokens, theirs, exact) in answers.items():
        same = [mine == token for mine, token in zip(ours[id].argmax(-1).tolist(), tokens, strict=True)]
        agreed = [*same, False].index(False)
        seen = slice(0, agreed + 1)  # the first token that differs was still chosen after the same ones
        pairs = {"ours_from_float32": (ours[id], exact), "generate_from_float32": (theirs, exact)}
        for name, (one, other) in (pairs | {"apart": (ours[id], theirs)}).items():
            distance = float((one[seen] - other[seen]).abs().mean() / exact[seen].std())
            figures[name] = max(figures[name], distance)
        figures["tokens"] += len(tokens)
        figures["same"] += agreed
    return figures


def main() -> None:
    where = place(__doc__)
    loaded = load_model(where.model, where.device, where.dtype)
    runs = {"plain": {"graphs": False}, "graphs": {}, "padded": {"pad_queries": 64}}
    recorded = {name: live_logits(where, loaded, **more) for name, more in runs.items()}
    del loaded
    answers = answers_to(recorded["plain"][0], where)
    figures = {name: figures_of(logits, answers) | {"notes": notes} for name, (_, logits, notes) in recorded.items()}
    ratios = {name: round(f["ours_from_float32"] / f["generate_from_float32"], 2) for name, f in figures.items()}
    same = {name: f"{f['same']}/{f['tokens']}" for name, f in figures.items()}
    report("exactness", f"distance from float32 over generate's: {ratios}; tokens until they part: {same}", figures)
    sys.exit(not all(ratio <= BAR for ratio in ratios.values()))


if __name__ == "__main__":
    main()
