"""The cost model: its formula by hand, its corrections, and decode runs equal to single iterations to the bit."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.cost_model import CostModel
from sim.decode_run import MOST, SHIFT, DecodeRun, run_until, unrolled
from sim.profiles import load_profile

PROFILES = {name: load_profile(f"h200/{name}") for name in ("qwen3-vl-8b", "qwen2-vl-7b")}
MODELS = {name: CostModel.from_profile(profile) for name, profile in PROFILES.items()}
ROUND = CostModel(
    host=7,
    encode_fixed=1000.0,
    encode_token=2.0,
    encode_square=0.5,
    gemm_floor=300.0,
    gemm_token=4.0,
    gemm_slope=1.0,
    gemm_power=2.0,
    prefill_fixed=50.0,
    prefill_token=3.0,
    prefill_half_pair=0.25,
    decode_fixed=20.0,
    decode_sequence=5.0,
    decode_context=0.5,
)


def test_nothing_costs_nothing() -> None:
    assert ROUND.encode(0, 0) == 0
    assert ROUND.compute([], 0, 0) == 0


def test_by_hand() -> None:
    assert ROUND.encode(30, 500) == 1000 + 60 + 250  # frames of 10 and 20 tokens
    # gemm(100) = hypot(300, 400) + 100 = 600; pairs 60*(10+30) + 40*20 = 3200, at 0.5 each
    assert ROUND.compute([(60, 10), (40, 0)], 0, 0) == 600 + 50 + 300 + 1600
    assert ROUND.compute([(60, 10), (30, 0)], 10, 900) == 600 + 50 + 270 + (2400 + 450) // 2 + 20 + 50 + 450
    assert ROUND.compute([], 100, 900) == 600 + 20 + 500 + 450


def listed(run: DecodeRun) -> list[int]:
    count, first, slope, rest = run
    ends = [rest + k * first + k * (k - 1) // 2 * slope >> SHIFT for k in range(count + 1)]
    return [end - start for start, end in pairwise(ends)]


@given(st.integers(1, 2**20), st.integers(0, 2**60), st.integers(0, 2**26 - 1), st.integers(0, 2**60))
@example(n=5000, first=0, rest=0, slope=1)
def test_runs_unroll_as_they_add_up(n: int, first: int, rest: int, slope: int) -> None:
    run, total = run_until(2**62, n, first, slope, rest)
    assert run.num_iterations * run.num_iterations * slope <= MOST or run.num_iterations == 1
    some = run._replace(num_iterations=min(run.num_iterations, 300))
    assert unrolled(some).tolist() == listed(some)
    count = run.num_iterations  # of the longest only the sum is looked at: many of a few quanta may be no nanosecond
    assert total == rest + count * first + count * (count - 1) // 2 * slope >> SHIFT
    assert count >= 5000 or unrolled(run).sum() == total


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 512), st.integers(1, 10_000_000))
def test_what_is_left_of_a_nanosecond_is_carried_on(name: str, num_decodes: int, context: int) -> None:
    """Within one of the formula each, and within one of it together, however many they are."""
    model, n = MODELS[name], 1000
    cost = model.parts([], num_decodes, context)
    exact = sum(cost) + model.decode_context * num_decodes * (n - 1) / 2
    assert abs(model.compute([], num_decodes, context) - sum(cost)) <= 1 + 1e-6 * sum(cost)
    total = model.decode_run(num_decodes, context, n, 2**60)[1] - n * model.host
    assert abs(total - n * exact) <= 1 + 1e-6 * n * exact


def test_halves_of_decodes_are_carried_on() -> None:
    assert [ROUND.compute([], 100, context) for context in (0, 200, 400)] == [1120, 1220, 1320]
    one, next_one = (ROUND.compute([], 100, context) for context in (1, 101))
    assert one + next_one == 2291 and one in (1120, 1121)  # 1,120.5 and 1,170.5


def test_power_does_not_overflow() -> None:
    steep = replace(ROUND, gemm_power=64.0, gemm_token=1e5)
    assert steep.compute([(1_000_000, 0)], 0, 0) > 10**11  # (1e11) ** 64 is no float


@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(1, 4096),
    st.one_of(st.integers(0, 10_000_000), st.integers(0, 2**80)),
    st.integers(1, 64),
)
def test_decode_run_is_identical(name: str, num_decodes: int, context: int, n: int) -> None:
    model = MODELS[name]
    whole, total = model.decode_run(num_decodes, context, n, 2**100)
    run = listed(whole)
    assert total == sum(run)
    computes = [model.compute([], num_decodes, context + k * num_decodes) for k in range(n)]
    assert run == [model.host + compute for compute in computes]


def test_long_decode_run() -> None:
    model = MODELS["qwen3-vl-8b"]
    run = listed(model.decode_run(3, 500, 5000, 2**60)[0])
    assert len(run) == 5000
    assert all(run[k] == model.host + model.compute([], 3, 500 + 3 * k) for k in range(0, 5000, 7))


@given(st.integers(1, 300), st.integers(1, 100_000), st.integers(1, 64), st.integers(1, 10**9))
def test_decode_run_stops_at_its_horizon(num_decodes: int, context: int, n: int, horizon: int) -> None:
    model = MODELS["qwen3-vl-8b"]
    cut, total = model.decode_run(num_decodes, context, n, horizon)
    run, whole = listed(cut), listed(model.decode_run(num_decodes, context, n, 2**60)[0])
    assert run == whole[: len(run)]
    assert total == sum(run)
    assert sum(run[:-1]) < horizon
    assert sum(run) >= horizon or len(run) == n


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 16384), st.integers(0, 100_000), st.integers(1, 256))
def test_more_work_takes_longer(name: str, chunk: int, cached: int, decodes: int) -> None:
    model, context = MODELS[name], decodes * cached
    alone = model.compute([(chunk, cached)], 0, 0)
    assert 0 < alone <= model.compute([(chunk, cached + 1)], 0, 0) < model.compute([(chunk + 1, cached + 1)], 0, 0)
    assert max(alone, model.compute([], decodes, context)) < model.compute([(chunk, cached)], decodes, context)


def test_corrections_can_be_left_off() -> None:
    profile = PROFILES["qwen3-vl-8b"]
    plain, full = CostModel.from_profile(profile, corrected=False), MODELS["qwen3-vl-8b"]
    assert (plain.host, full.host) == (0, 300_000)
    assert full.encode(4096, 4096**2) - plain.encode(4096, 4096**2) == 9_000_000
    assert math.isclose(full.compute([(2048, 0)], 8, 9000), 1.05 * plain.compute([(2048, 0)], 8, 9000), abs_tol=1)


@pytest.mark.parametrize(("images", "tokens", "ms"), [(4, 3520, 49.6), (8, 3520, 90.4), (4, 8160, 145.3)])
def test_encoder_of_a_measured_server(images: int, tokens: int, ms: float) -> None:
    """An SGLang server's log, Qwen3-VL-8B on one H200."""
    assert MODELS["qwen3-vl-8b"].encode(images * tokens, images * tokens**2) / 1e6 == pytest.approx(ms, rel=0.1)


@pytest.mark.parametrize(("decodes", "context", "ms"), [(64, 11000, 30.5), (1, 5000, 5.47)])
def test_decode_of_a_measured_server(decodes: int, context: int, ms: float) -> None:
    """The same log."""
    model = MODELS["qwen3-vl-8b"]
    assert (model.host + model.compute([], decodes, decodes * context)) / 1e6 == pytest.approx(ms, rel=0.1)
