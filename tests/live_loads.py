"""Random small live runs: requests with images, a server that is tight in everything, and what `generate` answers."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from executor.assembly import Batch
from executor.live import LiveRun, LiveWorld, answers_of, replay
from executor.models import LoadedModel, load_model
from executor.options import Options
from executor.pictures import Pictures
from executor.prepare import prepare
from executor.prompts import Prompts
from policies.request_state import RequestState
from sim import Scenario
from sim.run import serve
from workloads.request import MultimodalItem, Request
from workloads.traces import write_jsonl

GRIDS = [(1, 2, 2), (1, 4, 6), (1, 10, 4), (1, 8, 12), (1, 6, 6), (1, 16, 8), (2, 4, 4)]
PROFILE = "h200/qwen2-vl-7b"
torch.set_num_threads(1)


def tiny(dtype: torch.dtype = torch.float64) -> LoadedModel:
    return load_model("tiny", torch.device("cpu"), dtype)


def random_requests(rng: random.Random, count: int = 5) -> list[Request]:
    """0-3 images each, some of them shared, some without a key."""
    shared = [(f"k{index}", rng.choice(GRIDS)) for index in range(3)]
    requests, arrival = [], 0
    for id in range(count):
        arrival += rng.randrange(0, 30_000_000)
        pictures = [rng.choice([*shared, (None, rng.choice(GRIDS))]) for _ in range(rng.randrange(4))]
        requests.append(_request(rng, id, arrival, pictures))
    return requests


def _item(key: str | None, grid: tuple[int, int, int], offset: int) -> MultimodalItem:
    frames, height, width = grid
    tokens, embeds = frames * height * width, frames * height * width // 4
    modality = "video" if frames > 1 else "image"
    return MultimodalItem(key, modality, grid, offset, embeds, tokens, embeds, 196 * tokens)  # type: ignore[arg-type]


def _request(rng: random.Random, id: int, arrival: int, pictures: list[Any]) -> Request:
    place, items = rng.randrange(6), []
    for key, grid in pictures:
        items.append(_item(key, grid, place + 1))
        place += items[-1].embeds + 2 + rng.randrange(4)
    return Request(id, arrival, place + rng.randrange(1, 9), rng.randrange(1, 25), tuple(items))


def alike_requests(rng: random.Random, count: int = 6) -> list[Request]:
    """Prompts from one mould: hashed text and up to two images in it, which differ here and there, and own tails."""
    size, hashed = rng.choice([5, 13, 40]), rng.randrange(1, 12)
    mould = [(rng.choice(GRIDS), rng.randrange(1, 20)) for _ in range(rng.randrange(3))]
    requests, arrival = [], 0
    for id in range(count):
        arrival += rng.randrange(0, 40_000_000)
        place, items = 1 + mould[0][1] if mould else 0, []
        for grid, gap in mould:
            key = rng.choice(["a", "a", "a", "b", None])
            items.append(_item(None if key is None else f"{key}{grid}", grid, place))
            place += items[-1].embeds + 1 + gap
        hashes = tuple(10 * index + rng.choice([0, 0, 0, 0, 1]) for index in range(hashed))
        tokens = max(place, rng.choice([0, size * hashed])) + rng.randrange(1, 12)
        requests.append(Request(id, arrival, tokens, rng.randrange(1, 25), tuple(items), hashes, hash_block_size=size))
    return requests


def tight_engine(rng: random.Random, requests: list[Request]) -> dict[str, Any]:
    """Just enough for the largest request alone, or a little more: chunks, evictions and preemptions everywhere."""
    block_size = rng.choice([4, 8, 16])
    longest = max(r.prompt_tokens + r.output_tokens for r in requests)
    items = [item for r in requests for item in r.items]
    rows = max(sum(item.embeds for item in r.items) for r in requests)
    return {
        "max_num_seqs": rng.randrange(2, 5),
        "max_num_batched_tokens": rng.randrange(8, 40),
        "block_size": block_size,
        "num_kv_blocks": -(-longest // block_size) + rng.randrange(8),
        "capacity": rng.choice(["no_evict", "max_utilization"]),
        "encoder_max_num_items": rng.randrange(1, 4),
        "encoder_max_num_tokens": max((item.encoder_tokens for item in items), default=4) + rng.randrange(60),
        "encoder_cache_rows": max(1, rows + rng.randrange(30)),
        "release": rng.choice(["progressive", "prompt_end"]),
    }


def scenario(
    requests: list[Request], engine: dict[str, Any], policy: str | dict[str, Any], folder: Path, **more: Any
) -> Scenario:
    path = folder / "requests.jsonl"
    write_jsonl(path, requests)
    return Scenario.model_validate(
        {
            "name": "live",
            "model": "tiny",
            "profile": PROFILE,
            "workload": {"kind": "jsonl", "path": str(path)},
            "engine": engine,
            "policy": policy if isinstance(policy, dict) else {"kind": policy},
            **more,
        }
    )


def run_live(asked: Scenario, loaded: LoadedModel, **options: Any) -> LiveRun:
    chosen = Options(**{"clock": "model", **options})
    return replay(prepare(asked, loaded, chosen).checked, loaded, chosen)


class Recorded(NamedTuple):
    """A live run, the logits that each answer's tokens were chosen by, and what happened on the way."""

    live: LiveRun
    logits: dict[int, list[Tensor]]
    seen: Counter[str]

    @property
    def answers(self) -> dict[int, list[int]]:
        return dict(zip(*(self.live.tokens[name].to_pylist() for name in ("request_id", "tokens")), strict=True))


def run_recorded(asked: Scenario, loaded: LoadedModel) -> Recorded:
    """As `run_live`, looking at every batch on its way."""
    options = Options(clock="model")
    checked = prepare(asked, loaded, options).checked
    world = LiveWorld(checked, loaded, options)
    logits: dict[int, list[Tensor]] = defaultdict(list)
    seen: Counter[str] = Counter()
    backend, forward = world.device_backend, world.device_backend.runner.forward

    def recorded(batch: Batch) -> Tensor:
        result = forward(batch)
        for request, row in zip(batch.owners, result, strict=True):
            logits[request.id].append(row)
        paged = batch.paged
        seen["mixed"] += 0 < paged.num_chunks < len(paged.query_lens)
        seen["inside an image"] += any(start or end < entry.num_rows for entry, start, end in batch.pieces)
        return result

    backend.runner.forward = recorded  # type: ignore[method-assign]
    run = serve(world, checked.notes)
    seen["preempted"] = int(run.requests.num_preemptions.sum())
    seen["hits"] = int(run.requests.num_cache_hits.sum())
    seen["held back"] = sum('"held_back"' in plan for plan in world.plans)
    return Recorded(LiveRun(run, world.plans, answers_of(world), world), logits, seen)


class Reference:
    """The same weights through transformers' own `generate`."""

    def __init__(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        self.loaded, self.seed = tiny(dtype), seed
        self.loaded.model.set_attn_implementation("sdpa")
        self.prompts = Prompts(self.loaded, seed)
        self.pictures = Pictures(self.loaded.shape, seed, self.loaded.device, self.loaded.dtype)

    @torch.inference_mode()
    def generate(self, request: Request) -> tuple[list[int], Tensor]:
        """Answer, and its logits [tokens, vocabulary]."""
        config = self.loaded.config
        ids = torch.from_numpy(self.prompts.sequence(request).ids[None, : request.prompt_tokens])
        arguments: dict[str, Any] = {"max_new_tokens": request.output_tokens, "do_sample": False, "eos_token_id": -1}
        if request.items:
            types = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
            arguments["mm_token_type_ids"] = types
            arguments |= self._pixels(request)
        result = self.loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True, **arguments
        )
        return result.sequences[0, request.prompt_tokens :].tolist(), torch.cat(result.logits)

    def _pixels(self, request: Request) -> dict[str, Tensor]:
        keys, given = RequestState(request).keys, {}
        for modality, pixels, grids in (
            ("image", "pixel_values", "image_grid_thw"),
            ("video", "pixel_values_videos", "video_grid_thw"),
        ):
            own = [(item, key) for item, key in zip(request.items, keys, strict=True) if item.modality == modality]
            if own:
                given[pixels] = torch.cat([self.pictures.patches(item, key) for item, key in own])
                given[grids] = torch.tensor([item.grid for item, _ in own])
        return given
