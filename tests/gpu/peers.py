"""Beside others on the same device: transformers' `generate_batch` for text, and flashinfer's decode kernel if carried.

Tokens per second count what both need: ours from the first plan to the last token, theirs the whole call, both warm.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from common import Place, milliseconds, place, report
from paged_batches import Heads, random_batch
from transformers import ContinuousBatchingConfig, GenerationConfig

from executor.live import LiveWorld
from executor.models import load_model
from executor.options import Options
from executor.prepare import prepare
from executor.prompts import Prompts
from sim import Scenario
from sim.run import serve
from workloads.request import Request

SEVEN_B = Heads(7, 4, 128, 16)


class Text:
    """Requests without images, all there at once."""

    def __init__(self, where: Place) -> None:
        self.where = where
        self.count, self.prompt, self.output = (4, 20, 8) if where.rehearsal else (64, 256, 128)
        self.loaded = load_model(where.model, where.device, where.dtype)
        workload = {
            "kind": "synthetic", "arrivals": {"kind": "at_once"}, "num_requests": self.count,
            "text_tokens": self.prompt, "output_tokens": self.output,
        }  # fmt: skip
        engine = {"max_num_seqs": self.count, "max_num_batched_tokens": 2048, "num_kv_blocks": self.count * 32}
        self.scenario = Scenario.model_validate(
            {"name": "text", "model": "qwen2-vl-7b", "profile": "h200/qwen2-vl-7b", "workload": workload,
             "engine": engine, "policy": {"kind": "head_of_line"}}
        )  # fmt: skip

    def ours(self) -> float:
        options = Options(device=str(self.where.device), model=self.where.model, clock="wall")
        checked = prepare(self.scenario, self.loaded, options).checked
        world = LiveWorld(checked, self.loaded, options)
        self.requests = list(checked.scenario.workload.requests(seed=0, model=checked.scenario.model))
        return self._rate(lambda: serve(world, checked.notes))

    def theirs(self) -> float:
        """`generate_batch` on the same weights; a first call is not counted."""
        prompts = [self._ids(request) for request in self.requests]
        self.loaded.model.set_attn_implementation("sdpa")
        config = GenerationConfig(max_new_tokens=self.output, do_sample=False, eos_token_id=None, pad_token_id=0)
        cache = ContinuousBatchingConfig(num_blocks=max(16, 4 * self.count), max_batch_tokens=2048)

        def run(some: list[list[int]]) -> Any:
            return self.loaded.model.generate_batch(
                some, config, cache, warmup=not self.where.rehearsal, max_new_tokens=self.output
            )

        run(prompts[:2])
        return self._rate(lambda: run(prompts))

    def _ids(self, request: Request) -> list[int]:
        prompts = Prompts(self.loaded, 0)
        return prompts.sequence(request).ids[: request.prompt_tokens].tolist()

    def _rate(self, run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        return round(self.count * self.output / (time.perf_counter() - start), 1)


def flashinfer_decode(batch: int, context: int) -> dict[str, float]:
    """Milliseconds of one layer's decode attention in 7B's shape, ours and theirs on the same pages."""
    import flashinfer

    from executor.triton_attention import attend, prepare

    heads = SEVEN_B
    query, paged = random_batch(heads, [], [context] * batch, layers=4, dtype=torch.bfloat16, device="cuda")
    pages = -(-context // heads.page)
    workspace = torch.empty(128 * 2**20, dtype=torch.uint8, device="cuda")
    theirs = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * pages
    last = torch.full((batch,), context - (pages - 1) * heads.page, dtype=torch.int32, device="cuda")
    theirs.plan(
        starts, paged.tables[:, :pages].flatten().contiguous(), last, query.shape[1], heads.kv, heads.dim, heads.page,
        q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
    )  # fmt: skip
    paged.kernel = prepare(paged, query.shape[1])
    scale, layers = heads.dim**-0.5, range(4)
    mine = [lambda layer=layer: attend(query, paged, layer, scale) for layer in layers]
    other = [lambda layer=layer: theirs.run(query, (paged.keys[layer], paged.values[layer])) for layer in layers]
    apart = float((mine[0]().float() - other[0]().float()).abs().max())
    return {
        "ours_ms": round(milliseconds(mine, query.device), 4),
        "flashinfer_ms": round(milliseconds(other, query.device), 4),
        "apart": apart,
    }


def attempt(what: Callable[[], Any]) -> Any:
    """A peer that is not there or does not work here is a line, not the end."""
    try:
        return what()
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def main() -> None:
    where = place(__doc__)
    text = Text(where)
    figures: dict[str, Any] = {"ours": text.ours()}
    report("text", f"{figures['ours']} tokens/s", figures)
    figures["generate_batch"] = attempt(text.theirs)
    if not where.rehearsal:
        figures["flashinfer"] = {f"{b}x{c}": attempt(lambda b=b, c=c: flashinfer_decode(b, c))
                                 for b, c in ((1, 4096), (64, 2048))}  # fmt: skip
    report("peers", ", ".join(f"{name} {value}" for name, value in figures.items()), figures)


if __name__ == "__main__":
    main()
