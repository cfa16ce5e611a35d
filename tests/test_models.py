"""Models, prompts and pixels of live runs, held against what transformers makes of the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from live_loads import random_requests, run_live, scenario, tight_engine, tiny
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

from executor.models import load_model
from executor.pictures import Pictures
from executor.positions import prompt_positions
from executor.prompts import Prompts
from executor.sizes import SIZES, config_of
from workloads.errors import InputError
from workloads.models import MODELS

CPU = torch.device("cpu")
WORDS = ["a", "man", "sees", "the", "dog", "in", "a", "park", "and", "the", "man", "sees", "a", "dog"]


@pytest.mark.parametrize(("name", "billions"), [("qwen2-vl-2b", 2.21), ("qwen2-vl-7b", 8.29)])
def test_published_sizes_have_their_parameters(name: str, billions: float) -> None:
    with torch.device("meta"):
        model = Qwen2VLForConditionalGeneration._from_config(config_of(name))
    assert round(sum(p.numel() for p in model.parameters()) / 1e9, 2) == billions


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_that_scheduling_knows(name: str) -> None:
    config, entry = config_of(name), MODELS[name]
    text = config.text_config
    assert (text.hidden_size, text.num_hidden_layers) == (entry.hidden_size, entry.num_layers)
    assert text.num_key_value_heads == entry.num_kv_heads
    assert text.hidden_size // text.num_attention_heads == entry.head_dim
    assert config.vision_config.patch_size == entry.patch_size


def test_equal_seeds_give_equal_weights() -> None:
    one, other, another = (load_model("tiny", CPU, torch.float32, seed=seed) for seed in (1, 1, 2))
    weights = [loaded.model.lm_head.weight for loaded in (one, other, another)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("seed", range(10))
def test_positions_are_those_of_transformers(seed: int) -> None:
    loaded = tiny()
    prompts, config = Prompts(loaded, seed), loaded.config
    for request in random_requests(random.Random(seed)):
        if not request.items:
            continue
        positions, delta = prompt_positions(request, config.vision_config.spatial_merge_size)
        ids = torch.from_numpy(prompts.sequence(request).ids[None, : request.prompt_tokens])
        grids = {"image": [], "video": []}
        for item in request.items:
            grids[item.modality].append(item.grid)
        expected, deltas = loaded.model.model.get_rope_index(
            ids,
            mm_token_type_ids=(ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int(),
            image_grid_thw=torch.tensor(grids["image"]) if grids["image"] else None,
            video_grid_thw=torch.tensor(grids["video"]) if grids["video"] else None,
        )
        assert np.array_equal(expected[:, 0].numpy(), positions) and int(deltas) == delta


@pytest.mark.filterwarnings("ignore")  # the processor's own
def test_pixels_of_files_are_the_processors(tmp_path: Path) -> None:
    size = (112, 84)
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    loaded = tiny(torch.float32)
    pictures = Pictures(loaded.shape, 0, CPU, torch.float32, tmp_path)
    item = loaded.shape.item("key", "image", *size)
    processed = Qwen2VLImageProcessorPil()(Image.open(tmp_path / "picture.png"), return_tensors="pt")
    assert torch.allclose(pictures.patches(item, ("key",)), processed["pixel_values"], atol=1e-5)
    assert processed["image_grid_thw"].tolist() == [list(item.grid)]


def test_equal_keys_have_equal_pixels() -> None:
    loaded = tiny(torch.float32)
    pictures, item = Pictures(loaded.shape, 0, CPU, torch.float32), loaded.shape.item("key", "image", 56, 56)
    assert torch.equal(pictures.patches(item, ("a",)), pictures.patches(item, ("a",)))
    assert not torch.equal(pictures.patches(item, ("a",)), pictures.patches(item, ("b",)))
    assert not torch.equal(
        pictures.patches(item, ("a",)), Pictures(loaded.shape, 1, CPU, torch.float32).patches(item, ("a",))
    )


def _model_folder(folder: Path) -> Path:
    tiny(torch.float32).model.save_pretrained(folder)
    vocabulary = {word: 10 + index for index, word in enumerate(dict.fromkeys(WORDS))} | {"[UNK]": 0}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    return folder


def test_a_model_folder_runs_on_real_text(tmp_path: Path) -> None:
    folder, words = _model_folder(tmp_path / "own-model"), tmp_path / "words.txt"
    words.write_text(" ".join(WORDS))
    loaded = load_model(str(folder), CPU, torch.float32)
    assert (loaded.shape.name, loaded.shape.hidden_size) == ("own-model-float32", 64)
    rng = random.Random(5)
    requests = random_requests(rng)
    asked = scenario(requests, tight_engine(rng, requests), "fcfs", tmp_path)
    live = run_live(asked, loaded, text=words)
    assert live.run.verdict == "finished"
    prompts, known = Prompts(loaded, 0, words), set(range(10, 10 + len(set(WORDS))))
    for request in requests:
        text = prompts.sequence(request).ids[: request.prompt_tokens]
        outside = np.ones(request.prompt_tokens, bool)
        for item in request.items:
            outside[item.offset - 1 : item.offset + item.embeds + 1] = False
        assert set(text[outside].tolist()) <= known


def test_text_needs_a_tokenizer_and_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer"):
        Prompts(tiny(torch.float32), 0, tmp_path / "words.txt")
    loaded = load_model(str(_model_folder(tmp_path / "model")), CPU, torch.float32)
    (tmp_path / "empty.txt").write_text(" ")
    for file in ("none.txt", "empty.txt"):
        with pytest.raises(InputError, match=file):
            Prompts(loaded, 0, tmp_path / file)


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="is a llama"):
        load_model(str(tmp_path), CPU, torch.float32)
