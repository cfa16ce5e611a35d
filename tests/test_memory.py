"""The memory ledger against values computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.memory import MemoryLedger
from sim.profiles import load_profile
from workloads.errors import InputError

QWEN3, QWEN2 = (MemoryLedger.from_profile(load_profile(f"h200/{name}")) for name in ("qwen3-vl-8b", "qwen2-vl-7b"))
KV_BYTES = 147456  # a token of Qwen3-VL-8B: 36 layers, keys and values, 8 heads of 128, two bytes
ROW_BYTES = 32768  # 4 * 4096 * 2
SMALL = MemoryLedger(device_bytes=1000, weight_bytes=400, encoder_token_bytes=2)


def test_figures() -> None:
    assert QWEN3.device_bytes == 143156 * 2**20 == 150_109_945_856
    assert (QWEN3.weight_bytes, QWEN2.weight_bytes) == (17_534_247_392, 16_582_751_232)


def test_encoder_activations() -> None:
    assert QWEN3.encoder_activations(1) == 2 * (2 * 1152 + 2 * 4304) + 3 * 2 * 16 * 16 * 2 == 24_896
    assert QWEN2.encoder_activations(1) == 2 * (2 * 1280 + 2 * 5120) + 3 * 2 * 14 * 14 * 2 == 27_952
    assert QWEN3.encoder_activations(16384) == 407_896_064
    assert QWEN3.encoder_activations(0) == 0


def test_kv_pool_takes_its_fraction_of_what_is_left() -> None:
    assert SMALL.num_kv_blocks(0.5, 4, 10) == 300 // 40
    assert SMALL.num_kv_blocks(0.5, 4, 10, boundary_encoder_tokens=50, encoder_cache_bytes=100) == 200 // 40
    # 0.9 * (150109945856 - 17534247392) = 119318128617.6 bytes
    assert QWEN3.num_kv_blocks(0.9, 16, KV_BYTES) == 119_318_128_617 // (16 * KV_BYTES) == 50_573
    # ... less 65536 tokens of activations and a cache of 16384 rows: 1631584256 + 536870912 bytes
    assert QWEN3.num_kv_blocks(0.9, 16, KV_BYTES, 65536, 16384 * ROW_BYTES) == 117_366_518_966 // (16 * KV_BYTES)


@pytest.mark.parametrize(("fraction", "tokens", "cache"), [(0.01, 0, 0), (0.9, 300, 0), (0.9, 0, 700), (0.9, 200, 199)])
def test_no_memory_left(fraction: float, tokens: int, cache: int) -> None:
    with pytest.raises(InputError, match="no memory left for KV blocks"):
        SMALL.num_kv_blocks(fraction, 1, 10, tokens, cache)


def test_headroom_and_overflow() -> None:
    assert SMALL.headroom(500) == 100
    assert SMALL.overflow(kv_bytes=500, encoder_tokens=20, resident_rows=6, row_bytes=10) == 0  # 40 + 60: just fits
    assert SMALL.overflow(kv_bytes=500, encoder_tokens=20, resident_rows=7, row_bytes=10) == 10
    assert SMALL.overflow(kv_bytes=700, encoder_tokens=0, resident_rows=0, row_bytes=10) == 100


def test_a_large_kv_fraction_needs_a_budget() -> None:
    """Fraction 0.98, 32 requests of 7 images of 1024 pixels a side: all their outputs at once do not fit."""
    kv_bytes = QWEN3.num_kv_blocks(0.98, 32, KV_BYTES) * 32 * KV_BYTES
    assert QWEN3.overflow(kv_bytes, 7 * 4096, 32 * 7 * 1024, ROW_BYTES) > 0
    assert QWEN3.overflow(kv_bytes, 4 * 4096, 16384, ROW_BYTES) == 0


@given(st.floats(0.01, 1.0), st.integers(1, 128), st.integers(0, 100_000), st.integers(0, 2**30))
def test_reserved_memory_is_there_at_run_time(fraction: float, block_size: int, tokens: int, cache: int) -> None:
    """What the pool was told to leave is left: the boundary batch and a full cache never overflow."""
    blocks = QWEN3.num_kv_blocks(fraction, block_size, KV_BYTES, tokens, cache)
    assert QWEN3.overflow(blocks * block_size * KV_BYTES, tokens, cache, 1) == 0
