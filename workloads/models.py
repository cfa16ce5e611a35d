"""The vision-language models that a scenario can name: their shapes, pixel limits and bytes."""

import difflib
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from workloads.errors import InputError
from workloads.frozen import Frozen
from workloads.geometry import image_geometry, size_for_embeds
from workloads.request import Modality, MultimodalItem

DELIMITERS = 2  # tokens around every item's placeholders: vision start and vision end
PIXEL_LIMITS = {"min_pixels", "max_pixels"}

Figure = Annotated[int, Field(gt=0, le=2**20)]  # far above any model's
Pixels = Annotated[int, Field(gt=0, le=2**28)]


class VisionLanguageModel(Frozen):
    """The figures of a model that scheduling and pricing depend on."""

    name: str
    patch_size: Annotated[int, Field(gt=0, le=1024)]
    merge_size: Annotated[int, Field(gt=0, le=1024)] = 2
    min_pixels: Pixels  # an image below is enlarged
    max_pixels: Pixels  # an image above is shrunk
    hidden_size: Figure  # of the text model
    num_layers: Figure
    num_kv_heads: Figure
    head_dim: Figure
    num_deepstack: Annotated[int, Field(ge=0, le=1024)] = (
        0  # vision levels that every output row carries besides the last
    )
    dtype_bytes: Figure = 2
    supports_video: bool = True

    @model_validator(mode="after")
    def _limits_in_order(self) -> "VisionLanguageModel":
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} exceeds max_pixels {self.max_pixels}")
        return self

    @property
    def factor(self) -> int:
        """Pixels along one side of an output row's square."""
        return self.patch_size * self.merge_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return self.kv_bytes_per_rank(1)

    def kv_bytes_per_rank(self, ranks: int) -> int:
        """Of one token on each of so many ranks of tensor parallelism; a head is never split, but kept twice."""
        heads = -(-self.num_kv_heads // ranks)
        return 2 * self.num_layers * heads * self.head_dim * self.dtype_bytes

    @property
    def embedding_row_bytes(self) -> int:
        """One row of encoder output: Qwen3-VL's holds its deepstack levels too, so it is four times the text's."""
        return self.hidden_size * self.dtype_bytes * (1 + self.num_deepstack)

    def item(
        self, key: str | None, modality: Modality, width: int, height: int, frames: int = 1, offset: int = 1
    ) -> MultimodalItem:
        """An image or video of that size, its first placeholder at `offset` in the prompt."""
        if modality == "video" and not self.supports_video:
            raise InputError(f"{self.name} takes no videos")
        shape = image_geometry(
            width,
            height,
            factor=self.patch_size * self.merge_size,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            frames=frames,
            merge_size=self.merge_size,
        )
        embeds = shape.embeds
        pixels = width * height * frames
        return MultimodalItem(key, modality, shape.grid, offset, embeds, shape.encoder_tokens, embeds, pixels)

    def size_for_embeds(self, embeds: int) -> tuple[int, int]:
        """(width, height) of an image that comes nearest to that many embeds."""
        return size_for_embeds(embeds, factor=self.factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels)


# Shapes: each model's config.json on the Hugging Face hub (text: hidden_size, num_hidden_layers, num_key_value_heads,
# head_dim or hidden_size / num_attention_heads; vision: patch_size, spatial_merge_size, deepstack_visual_indexes).
# Pixel limits: its preprocessor_config.json (Qwen3-VL: size.shortest_edge and size.longest_edge).
_ENTRIES = (
    # a Qwen2-VL for tests: everything works, nothing takes time (executor/sizes.py)
    VisionLanguageModel(
        name="tiny",
        patch_size=14,
        min_pixels=3136,
        max_pixels=12_845_056,
        hidden_size=64,
        num_layers=2,
        num_kv_heads=2,
        head_dim=16,
        dtype_bytes=4,
    ),
    # a Qwen2-VL for timing on CPUs (executor/sizes.py)
    VisionLanguageModel(
        name="small",
        patch_size=14,
        min_pixels=3136,
        max_pixels=12_845_056,
        hidden_size=256,
        num_layers=4,
        num_kv_heads=2,
        head_dim=32,
        dtype_bytes=4,
    ),
    # Qwen/Qwen2-VL-2B-Instruct
    VisionLanguageModel(
        name="qwen2-vl-2b",
        patch_size=14,
        min_pixels=3136,
        max_pixels=12_845_056,
        hidden_size=1536,
        num_layers=28,
        num_kv_heads=2,
        head_dim=128,
    ),
    # Qwen/Qwen2-VL-7B-Instruct
    VisionLanguageModel(
        name="qwen2-vl-7b",
        patch_size=14,
        min_pixels=3136,
        max_pixels=12_845_056,
        hidden_size=3584,
        num_layers=28,
        num_kv_heads=4,
        head_dim=128,
    ),
    # Qwen/Qwen2.5-VL-7B-Instruct
    VisionLanguageModel(
        name="qwen2.5-vl-7b",
        patch_size=14,
        min_pixels=3136,
        max_pixels=12_845_056,
        hidden_size=3584,
        num_layers=28,
        num_kv_heads=4,
        head_dim=128,
    ),
    # Qwen/Qwen3-VL-8B-Instruct
    VisionLanguageModel(
        name="qwen3-vl-8b",
        patch_size=16,
        min_pixels=65_536,
        max_pixels=16_777_216,
        hidden_size=4096,
        num_layers=36,
        num_kv_heads=8,
        head_dim=128,
        num_deepstack=3,
    ),
)
MODELS = {model.name: model for model in _ENTRIES}


def model_named(name: str) -> VisionLanguageModel:
    """The published model of that name; InputError naming the nearest one otherwise."""
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name, MODELS, n=1, cutoff=0.0)[0]
    raise InputError(f"no model is called {name!r}; did you mean {near!r}? (there are {', '.join(MODELS)})")


def _decode(value: Any) -> Any:
    """A name, or a name with other pixel limits; a mapping with every figure describes a model of one's own."""
    if isinstance(value, str):
        return model_named(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return value
    required = {name for name, field in VisionLanguageModel.model_fields.items() if field.is_required()}
    if value["name"] not in MODELS and required <= value.keys():
        return value
    entry = model_named(value["name"]).model_dump()
    changed = [name for name in value if name not in PIXEL_LIMITS and name in entry and value[name] != entry[name]]
    if changed:
        raise InputError(f"of {value['name']} only min_pixels and max_pixels can be changed, not {', '.join(changed)}")
    return {**entry, **value}


Model = Annotated[VisionLanguageModel, BeforeValidator(_decode)]
