"""Shapes of the models: parameters against the published sizes of their files, ranks, and the floor by hand."""

from __future__ import annotations

import pytest

from sim.architecture import ARCHITECTURES
from sim.devices import DEVICES
from sim.figures import Memory, Roofline
from sim.floors import Floors, roofline
from sim.memory import MemoryLedger
from sim.profiles import PROFILES, load_profile
from workloads.models import MODELS

# total_size in model.safetensors.index.json on the Hugging Face hub; of the 2B, whose logits share the embeddings, the
# bytes of its 2,208,985,600 parameters
FILES = {
    "qwen2-vl-2b": 4_417_971_200,
    "qwen2-vl-7b": 16_582_751_232,
    "qwen2.5-vl-7b": 16_584_333_312,
    "qwen3-vl-8b": 17_534_247_392,
}


@pytest.mark.parametrize("name", FILES)
def test_weights_are_those_of_the_files(name: str) -> None:
    assert ARCHITECTURES[name].weight_bytes(1) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_shapes_agree_with_those_that_scenarios_name(name: str) -> None:
    language, shape = ARCHITECTURES[name].language, MODELS[name]
    assert (language.hidden, language.layers, language.kv_heads, language.head_dim) == (
        (shape.hidden_size, shape.num_layers, shape.num_kv_heads, shape.head_dim)
    )
    assert ARCHITECTURES[name].vision.patch == shape.patch_size


@pytest.mark.parametrize("name", FILES)
def test_ranks_part_the_matrices_and_keep_the_rest(name: str) -> None:
    """All ranks together hold the model once, and what is not parted once more on each rank but the first."""
    architecture = ARCHITECTURES[name]
    kept = architecture.language.parameters.replicated + architecture.vision.parameters.replicated
    for ranks in (2, 4):
        assert ranks * architecture.weight_bytes(ranks) == FILES[name] + 2 * (ranks - 1) * kept
    assert kept * 2 < 0.002 * FILES[name]


@pytest.mark.parametrize(("heads", "ranks", "kept"), [(8, 2, 4), (8, 4, 2), (4, 4, 1), (2, 4, 1), (8, 1, 8)])
def test_keys_and_values_of_a_rank(heads: int, ranks: int, kept: int) -> None:
    """A head is never split: where there are more ranks than heads, some keep the same one."""
    model = MODELS["qwen3-vl-8b"].model_copy(update={"num_kv_heads": heads})
    assert model.kv_bytes_per_rank(ranks) == 2 * 36 * kept * 128 * 2


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "qwen3-vl-8b"])
def test_ranks_leave_more_than_twice_the_blocks(name: str) -> None:
    """Of each rank's memory fewer weights are taken, and a block on it is smaller."""
    model, blocks = MODELS[name], {}
    for ranks in (1, 2, 4):
        profile = load_profile(f"h200/{name}-sglang-tp{ranks}")
        assert profile.source.gpus == ranks
        assert profile.memory == Memory.model_validate(ARCHITECTURES[name].memory(ranks))
        blocks[ranks] = MemoryLedger.from_profile(profile).num_kv_blocks(0.9, 16, model.kv_bytes_per_rank(ranks))
        free = profile.device.memory.value - ARCHITECTURES[name].weight_bytes(ranks)
        assert blocks[ranks] == int(0.9 * free) // (16 * model.kv_bytes_per_token // ranks)
    assert blocks[2] > 2.1 * blocks[1] and blocks[4] > 2 * blocks[2]


def test_a_gate_is_held_beside_what_it_gates() -> None:
    """Before the activation gate and up, after it one of them: 3 * 3420 elements, of which the ledger doubles half."""
    assert ARCHITECTURES["qwen2.5-vl-7b"].memory(1)["vision_mlp"]["value"] == 3 * 3420 // 2
    assert ARCHITECTURES["qwen3-vl-8b"].memory(2)["vision_mlp"]["value"] == 4304 // 2


def test_floors_by_hand() -> None:
    """Qwen3-VL-8B on one H200: reading 7.57e9 parameters, or computing on them."""
    floors = Floors(Roofline.model_validate(roofline(ARCHITECTURES["qwen3-vl-8b"], DEVICES["h200_sxm"], 1)))
    layer = 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288)
    assert floors.gemm(1) == pytest.approx(1e3 * 2 * (36 * layer + 151936 * 4096) / 4.8e12)
    assert floors.gemm(8192) == pytest.approx(1e3 * 2 * 36 * layer * 8192 / 989e12)
    assert floors.gemm(0) == floors.encode(0, 0) == floors.prefill_attention([]) == floors.decode_attention(0) == 0
    assert floors.decode_attention(32 * 5000) == pytest.approx(1e3 * 32 * 5000 * 147456 / 4.8e12)
    pairs = 1000 * 2000 + 1000 * 1001 / 2  # each query attends to itself and to all before it
    assert floors.prefill_attention([(1000, 2000)]) == pytest.approx(1e3 * 4 * 36 * 4096 * pairs / 989e12)
    block = 27 * (4 * 1152**2 + 2 * 1152 * 4304) + 4 * 4608 * (4608 + 4096) / 4
    assert floors.encode(8192, 2 * 4096**2) == pytest.approx(
        1e3 * (2 * block * 8192 + 4 * 27 * 1152 * 2 * 4096**2) / 989e12
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in (PROFILES / "h200").glob("*.json")))
def test_no_published_time_is_below_its_floor(name: str) -> None:
    """Matrix products at their best are at 95 % of the data sheet's peak."""
    profile = load_profile(f"h200/{name}")
    assert profile.roofline is not None
    floors, c = Floors(profile.roofline), profile.coefficients
    assert floors.gemm(8192) < c.G1.value * 8192 + c.G2.value * 8192 and floors.gemm(1) < c.G0.value
    assert floors.decode_attention(10**6) < c.D2.value * 10**6
    assert floors.encode(8192, 8192**2) < c.E1.value * 8192 + c.E2.value * 8192**2
