"""Image geometry: worked vectors, published odd cases, and what holds for every size."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import MODELS, InputError, Model, image_geometry
from workloads.geometry import size_for_embeds
from workloads.sizes import UniformSize

CASES = json.loads((Path(__file__).parent / "data" / "image_geometry.json").read_text())
LIMITS = {
    "qwen2vl_classdefault": {"factor": 28, "min_pixels": 3136, "max_pixels": 1_003_520},
    "qwen2vl_hub": {"factor": 28, "min_pixels": 3136, "max_pixels": 12_845_056},
    "qwen3vl_hub": {"factor": 32, "min_pixels": 65_536, "max_pixels": 16_777_216},
}
CLASS_DEFAULT = LIMITS["qwen2vl_classdefault"]
decode = TypeAdapter(Model).validate_python


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['proc']}-{case['w']}x{case['h']}")
def test_worked_vectors(case):
    shape = image_geometry(case["w"], case["h"], **LIMITS[case["proc"].split("(")[0]])
    assert (shape.resized_width, shape.resized_height) == (case["resized_w"], case["resized_h"])
    assert (list(shape.grid), shape.encoder_tokens, shape.embeds) == (case["grid"], case["pre"], case["llm"])


@pytest.mark.parametrize(
    ("height", "width", "limits", "resized", "tokens"),
    [
        (31, 639, {"max_pixels": 20 * 784}, (28, 560), (80, 20)),  # QwenLM/Qwen3-VL#1145: a side must not become 0
        (1, 200, {}, (28, 812), (116, 29)),
        (1, 1, {}, (56, 56), (16, 4)),
        (14, 14, {}, (56, 56), (16, 4)),
        (70, 70, {}, (56, 56), (16, 4)),  # 2.5 rounds to even
        (1024, 1024, {"max_pixels": 12_845_056}, (1036, 1036), (5476, 1369)),  # huggingface/transformers#41955
        (896, 1120, {}, (896, 1120), (5120, 1280)),  # more than the square's 1225
        (4000, 4000, {"max_pixels": 12_845_056}, (3584, 3584), (65_536, 16_384)),  # vllm-project/vllm#38465
    ],
)
def test_published_odd_cases(height, width, limits, resized, tokens):
    shape = image_geometry(width, height, **{**CLASS_DEFAULT, **limits})
    assert (shape.resized_height, shape.resized_width) == resized
    assert (shape.encoder_tokens, shape.embeds) == tokens


@pytest.mark.parametrize(("frames", "rows"), [(1, 1), (2, 1), (3, 2), (16, 8)])
def test_video_frames_share_patches_in_pairs(frames, rows):
    shape = image_geometry(224, 224, **CLASS_DEFAULT, frames=frames)
    assert shape.grid == (rows, 16, 16) and shape.encoder_tokens == rows * 256 and shape.embeds == rows * 64


@pytest.mark.parametrize(
    ("width", "height", "message"), [(201, 1, "aspect ratio"), (0, 5, "positive size"), (5, -1, "5x-1")]
)
def test_impossible_sizes(width, height, message):
    with pytest.raises(InputError, match=message):
        image_geometry(width, height, **CLASS_DEFAULT)


def test_no_frames():
    with pytest.raises(InputError, match="0 frames"):
        image_geometry(10, 10, **CLASS_DEFAULT, frames=0)


@given(st.integers(1, 9000), st.integers(1, 9000), st.sampled_from(sorted(LIMITS)))
def test_multiples_of_the_factor_within_the_limits(width, height, limits):
    figures = LIMITS[limits]
    assume(max(width, height) <= 200 * min(width, height))
    shape = image_geometry(width, height, **figures)
    assert shape.resized_width % figures["factor"] == shape.resized_height % figures["factor"] == 0
    pixels = shape.resized_width * shape.resized_height
    thin = min(shape.resized_width, shape.resized_height) == figures["factor"]
    assert pixels >= figures["min_pixels"] and (pixels <= figures["max_pixels"] or thin)
    assert shape.embeds * 4 == shape.encoder_tokens == shape.grid[1] * shape.grid[2]


@given(st.integers(1, 20_000), st.sampled_from(sorted(LIMITS)))
def test_an_image_for_embeds_has_them_or_nearly(embeds, limits):
    figures = LIMITS[limits]
    width, height = size_for_embeds(embeds, **figures)
    least, most = figures["min_pixels"] // figures["factor"] ** 2, figures["max_pixels"] // figures["factor"] ** 2
    assert abs(image_geometry(width, height, **figures).embeds - min(max(embeds, least), most)) <= 3


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(st.integers(20, 300), st.integers(0, 60)),
    st.tuples(st.integers(20, 300), st.integers(0, 60)),
    st.tuples(st.integers(10, 40), st.integers(0, 60)),
)
def test_the_largest_of_a_range_is_that_of_all_its_sizes(wide, high, limits):
    model = MODELS["qwen2-vl-2b"].model_copy(update={"min_pixels": limits[0] * 784, "max_pixels": sum(limits) * 784})
    sizes = UniformSize(width={"min": wide[0], "max": sum(wide)}, height={"min": high[0], "max": sum(high)})
    embeds = [
        model.item(None, "image", width, height).embeds
        for width in range(wide[0], sum(wide) + 1)
        for height in range(high[0], sum(high) + 1)
    ]
    assert model.item(None, "image", *sizes.largest(model)).embeds == max(embeds)


def test_the_largest_is_not_always_the_corner():
    model = decode({"name": "qwen2-vl-2b", "max_pixels": 1_003_520})
    sizes = UniformSize(width={"min": 800, "max": 1200}, height={"min": 800, "max": 1200})
    assert model.item(None, "image", *sizes.largest(model)).embeds == 1280
    assert model.item(None, "image", 1200, 1200).embeds == 1225


def test_published_figures():
    assert MODELS["qwen2-vl-2b"].kv_bytes_per_token == 28_672
    assert MODELS["qwen2-vl-7b"].kv_bytes_per_token == MODELS["qwen2.5-vl-7b"].kv_bytes_per_token == 57_344
    assert MODELS["qwen3-vl-8b"].kv_bytes_per_token == 147_456
    assert MODELS["qwen2-vl-2b"].embedding_row_bytes == 3072
    assert MODELS["qwen3-vl-8b"].embedding_row_bytes == 32_768  # with deepstack: four times the text's 8192
    assert {name: model.factor for name, model in MODELS.items()} == {
        "tiny": 28, "small": 28, "qwen2-vl-2b": 28, "qwen2-vl-7b": 28, "qwen2.5-vl-7b": 28, "qwen3-vl-8b": 32
    }  # fmt: skip


def test_an_item():
    item = MODELS["qwen3-vl-8b"].item("k", "video", 640, 480, frames=3, offset=7)
    assert (item.key, item.modality, item.grid, item.offset) == ("k", "video", (2, 30, 40), 7)
    assert (item.length, item.embeds, item.encoder_tokens, item.pixels) == (600, 600, 2400, 640 * 480 * 3)


def test_a_model_without_videos():
    with pytest.raises(InputError, match="takes no videos"):
        MODELS["qwen2-vl-2b"].model_copy(update={"supports_video": False}).item(None, "video", 64, 64, 2)


def test_a_model_in_yaml_is_a_name_or_a_name_with_pixel_limits():
    assert decode("qwen3-vl-8b") is MODELS["qwen3-vl-8b"]
    limited = decode({"name": "qwen3-vl-8b", "max_pixels": 1_003_520})
    assert limited == MODELS["qwen3-vl-8b"].model_copy(update={"max_pixels": 1_003_520})
    assert decode(limited.model_dump()) == limited
    own = MODELS["qwen2-vl-2b"].model_copy(update={"name": "own", "num_layers": 2})
    assert decode(own.model_dump()) == decode(own) == own


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("qwen3-vl-8", "did you mean 'qwen3-vl-8b'"),
        ({"name": "qwen2_vl_2b", "max_pixels": 5}, "did you mean 'qwen2-vl-2b'"),
        ({"name": "qwen3-vl-8b", "num_layers": 2}, "not num_layers"),
        ({"name": "qwen3-vl-8b", "max_pixels": 5}, "min_pixels 65536 exceeds max_pixels 5"),
        ({"name": "qwen3-vl-8b", "max_pixel": 5}, "max_pixel"),
        ({"name": "qwen3-vl-8b", "max_pixels": 10**18}, "less than or equal to 268435456"),
        (MODELS["qwen3-vl-8b"].model_dump() | {"name": "own", "num_layers": 10**18}, "less than or equal to 1048576"),
        ({"max_pixels": 5}, "name"),
        (5, "VisionLanguageModel"),
    ],
)
def test_wrong_models(value, message):
    with pytest.raises(ValidationError, match=message):
        decode(value)


def test_models_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        MODELS["qwen3-vl-8b"].max_pixels = 1  # type: ignore[misc]


def test_half_to_even_as_numpy_rounds():
    halves = np.arange(1, 40) * 28 + 14
    resized = [image_geometry(int(side), int(side), **LIMITS["qwen2vl_hub"]).resized_width for side in halves]
    assert resized == (np.rint(halves / 28) * 28).astype(int).tolist()
