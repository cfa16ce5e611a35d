"""Qwen2-VL as transformers has it, unmodified: seeded random weights of a named size, or real ones from a folder."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, Qwen2VLForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from executor.attention import ATTENTION
from executor.devices import free_bytes
from executor.messages import first_line
from executor.sizes import SIZES
from policies.units import in_bytes
from workloads.errors import InputError
from workloads.models import MODELS, VisionLanguageModel


@dataclass
class LoadedModel:
    """A model ready to run, and what the rest must know of it."""

    name: str
    model: Any  # Qwen2VLForConditionalGeneration, with our attention functions
    shape: VisionLanguageModel  # the figures that scheduling depends on, in the executed dtype
    tokenizer: Any = None  # only real models have one

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def weight_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @property
    def ordinary_tokens(self) -> tuple[int, int]:
        """The longest stretch of ids that mean nothing special, as first and last + 1."""
        config = self.config
        special = {config.image_token_id, config.video_token_id, config.vision_start_token_id}
        special |= {config.vision_end_token_id, config.text_config.bos_token_id, config.text_config.eos_token_id}
        edges = [-1, *sorted(special), config.text_config.vocab_size]
        first, last = max(itertools.pairwise(edges), key=lambda gap: gap[1] - gap[0])
        return first + 1, last


def load_model(name: str, device: torch.device, dtype: torch.dtype, *, seed: int = 0) -> LoadedModel:
    """A size of `executor.sizes` with random weights, or a local folder or hub id with real ones.

    Raises InputError where there is none of that name, it is no Qwen2-VL, its files are broken or it does not fit.
    """
    if name in SIZES:
        return _finish(name, _random(name, device, dtype, seed), MODELS[name])
    if name in MODELS:
        raise InputError(f"model {name!r} can only be simulated; --model runs another in its place: {', '.join(SIZES)}")
    if "/" not in name and not Path(name).is_dir():  # a hub id has an owner
        raise InputError(f"no model {name!r}: neither {', '.join(SIZES)}, nor a folder")
    config = _read_config(name)
    disable_progress_bar()  # transformers' own, which it draws even where nobody looks
    try:
        _check_fit(name, config, device, dtype)
        model = Qwen2VLForConditionalGeneration.from_pretrained(name, config=config, dtype=dtype).to(device)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except InputError:
        raise
    except Exception as error:  # whatever a broken file makes its reader raise
        raise InputError(f"model {name!r} cannot be loaded: {first_line(error)}") from None
    return _finish(name, model, shape_of(Path(name).name or name, config), tokenizer)


def _random(name: str, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """Built where it will run; timing does not depend on the weights' values."""
    _check_fit(name, SIZES[name](), device, dtype)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(seed)
        # cast while it is built: a cast afterwards would also cast the rotary frequencies, which stay in float32
        return Qwen2VLForConditionalGeneration._from_config(SIZES[name](), dtype=dtype)


def _finish(name: str, model: Any, shape: VisionLanguageModel, tokenizer: Any = None) -> LoadedModel:
    model.set_attn_implementation(ATTENTION)
    model.eval().requires_grad_(False)
    return LoadedModel(name, model, _in_dtype(shape, model.dtype), tokenizer)


def _in_dtype(shape: VisionLanguageModel, dtype: torch.dtype) -> VisionLanguageModel:
    """A named model in another dtype takes other bytes, so that it needs another name."""
    if shape.dtype_bytes == dtype.itemsize:
        return shape
    word = str(dtype).removeprefix("torch.")
    return shape.model_copy(update={"dtype_bytes": dtype.itemsize, "name": f"{shape.name}-{word}"})


def _check_fit(name: str, config: Any, device: torch.device, dtype: torch.dtype) -> None:
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Qwen2VLForConditionalGeneration._from_config(config).parameters())
    needed, free = parameters * dtype.itemsize, free_bytes(device)
    if needed > free:
        raise InputError(
            f"model {name!r} does not fit: its weights take {in_bytes(needed)}, {device} has {in_bytes(free)} free"
        )


def _read_config(name: str) -> Any:
    try:
        config = AutoConfig.from_pretrained(name)
    except Exception as error:  # no such folder, no network, no JSON: all end the same way
        known = ", ".join(SIZES)
        raise InputError(f"no model {name!r}: neither {known}, nor a readable folder: {first_line(error)}") from None
    if config.model_type != "qwen2_vl":
        raise InputError(f"model {name!r} is a {config.model_type}; the executor runs qwen2_vl")
    return config


def shape_of(name: str, config: Any) -> VisionLanguageModel:
    """The figures that scheduling needs, as a model's config.json has them; pixel limits are Qwen2-VL's own."""
    text, vision = config.text_config, config.vision_config
    limits = MODELS["qwen2-vl-7b"]
    return VisionLanguageModel(
        name=name,
        patch_size=vision.patch_size,
        merge_size=vision.spatial_merge_size,
        min_pixels=limits.min_pixels,
        max_pixels=limits.max_pixels,
        hidden_size=text.hidden_size,
        num_layers=text.num_hidden_layers,
        num_kv_heads=text.num_key_value_heads,
        head_dim=text.hidden_size // text.num_attention_heads,
    )
