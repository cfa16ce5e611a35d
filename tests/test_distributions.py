"""Distributions of lengths and sizes: what they draw, their bounds, their YAML and its errors."""

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import MODELS, Lengths, Sizes
from workloads.streams import stream

lengths = TypeAdapter(Lengths).validate_python
sizes = TypeAdapter(Sizes).validate_python
N = 100_000
LENGTHS = [
    "7",
    "{kind: fixed, value: 7}",
    "{kind: uniform, min: 3, max: 9}",
    "{kind: lognormal, mean: 500, sigma: 0.7, max: 20000}",
    "{kind: lognormal, median: 500, sigma: 1.5, min: 20, max: 2000}",
    "{kind: choice, values: [5, 1, 9], weights: [1, 2, 0]}",
    "{kind: choice, values: [5, 1, 9]}",
    "{kind: empirical, values: [4, 4, 4, 2]}",
    "{kind: empirical, values: {136: 0.25, 372: 0.75, 999: 0}}",
]


def draw(text: str, n: int = N) -> np.ndarray:
    return lengths(yaml.safe_load(text)).draw(stream(1, "test"), n)


@pytest.mark.parametrize("text", LENGTHS)
def test_draws_stay_within_their_bounds_and_reach_them(text):
    distribution, numbers = lengths(yaml.safe_load(text)), draw(text)
    assert numbers.dtype == np.int64 and numbers.shape == (N,)
    assert distribution.smallest() <= numbers.min() and numbers.max() <= distribution.largest()
    if "mean" not in text:
        assert numbers.min() == distribution.smallest() and numbers.max() == distribution.largest()


@pytest.mark.parametrize("text", LENGTHS)
def test_the_same_seed_draws_the_same_and_yaml_round_trips(text):
    distribution = lengths(yaml.safe_load(text))
    assert np.array_equal(draw(text, 50), distribution.draw(stream(1, "test"), 50))
    assert lengths(distribution.model_dump(mode="json")) == distribution


def test_a_bare_number_is_fixed():
    assert lengths(7) == lengths({"kind": "fixed", "value": 7})


def test_uniform_takes_both_ends_alike():
    counts = np.bincount(draw("{kind: uniform, min: 3, max: 9}"))[3:]
    assert len(counts) == 7 and np.allclose(counts / N, 1 / 7, atol=0.005)


def test_lognormal_has_its_mean_or_its_median():
    assert draw(LENGTHS[3]).mean() == pytest.approx(500, rel=0.02)
    assert np.median(draw(LENGTHS[4])) == pytest.approx(500, rel=0.02)
    assert np.log(draw(LENGTHS[3])).std() == pytest.approx(0.7, rel=0.02)


def test_a_huge_sigma_is_clipped_without_a_warning():
    numbers = draw("{kind: lognormal, median: 10, sigma: 1000, max: 50}")
    assert set(numbers.tolist()) >= {1, 50} and numbers.max() == 50


@pytest.mark.parametrize("centre", ["mean", "median"])
@pytest.mark.parametrize("value", [1e-9, 1e9])
@pytest.mark.parametrize("sigma", [0, 1e-300, 1000])
def test_extreme_lognormals_stay_within_their_bounds(centre, value, sigma):
    numbers = draw(f"{{kind: lognormal, {centre}: {value!r}, sigma: {sigma!r}, min: 2, max: {2**40}}}", 1000)
    assert numbers.min() >= 2 and numbers.max() <= 2**40


def test_extreme_weights():
    assert set(draw("{kind: choice, values: [1, 2], weights: [5.0e-324, 5.0e-324]}").tolist()) == {1, 2}
    assert set(draw("{kind: empirical, values: {1: 1.0e-300, 2: 1.0e+15}}").tolist()) == {2}


def test_weights():
    values, counts = np.unique(draw(LENGTHS[5]), return_counts=True)
    assert values.tolist() == [1, 5] and counts[0] / N == pytest.approx(2 / 3, abs=0.01)
    values, counts = np.unique(draw(LENGTHS[7]), return_counts=True)
    assert values.tolist() == [2, 4] and counts[1] / N == pytest.approx(0.75, abs=0.01)
    values, counts = np.unique(draw(LENGTHS[8]), return_counts=True)
    assert values.tolist() == [136, 372] and counts[1] / N == pytest.approx(0.75, abs=0.01)


@given(st.dictionaries(st.integers(0, 10**9), st.floats(0.001, 1e9), min_size=1, max_size=20), st.integers(0, 2**64))
def test_only_values_with_weight_are_drawn(weights, seed):
    distribution = lengths({"kind": "empirical", "values": weights})
    assert set(distribution.draw(np.random.default_rng(seed), 50).tolist()) <= set(weights)
    assert (distribution.smallest(), distribution.largest()) == (min(weights), max(weights))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", "greater than or equal to 0"),
        ("1.5", "fractional"),
        (".nan", "finite"),
        ("true", "must be a number, or a mapping"),
        ("[1, 2]", "must be a number, or a mapping"),
        ("many", "must be a number, or a mapping"),
        ("{kind: uniform, min: 9, max: 3}", "min 9 exceeds max 3"),
        ("{kind: uniform, min: 3}", "max"),
        ("{kind: uniform, min: 3, max: 4, mean: 2}", "Extra"),
        ("{kind: lognormal, mean: 5, median: 5, sigma: 1, max: 9}", "either mean or median"),
        ("{kind: lognormal, sigma: 1, max: 9}", "either mean or median"),
        ("{kind: lognormal, mean: .inf, sigma: 1, max: 9}", "finite"),
        ("{kind: lognormal, mean: 5, sigma: -1, max: 9}", "greater than or equal to 0"),
        ("{kind: choice, values: []}", "at least 1"),
        ("{kind: choice, values: [1, 2], weights: [1]}", "2 values but 1 weights"),
        ("{kind: choice, values: [1, 2], weights: [0, 0]}", "all be zero"),
        ("{kind: choice, values: [1, 2], weights: [1, -1]}", "greater than or equal to 0"),
        ("{kind: choice, values: [1, 2], weights: [1, .nan]}", "finite"),
        ("{kind: empirical, values: {}}", "at least 1"),
        ("{kind: empirical, values: {5: 0}}", "all be zero"),
        ("{kind: empirical, values: [5, 1000000000000000000]}", "less than or equal to 1099511627776"),
        ("{kind: empirical, values: {5: 1.0e+308}}", "less than or equal to"),
        ("{kind: choice, values: [1, 2], weights: [1.0e+308, 1.0e+308]}", "less than or equal to"),
        ("1000000000000000000000", "less than or equal to 1099511627776"),
        ("{kind: uniform, min: 0, max: 9223372036854775807}", "less than or equal to 1099511627776"),
        ("{kind: lognormal, median: 5, sigma: 1.0e+300, max: 9}", "less than or equal to 1000"),
        ("{kind: lognormal, mean: 1.0e+300, sigma: 1, max: 9}", "less than or equal to 1000000000"),
        ("{kind: lognormal, mean: 1.0e-300, sigma: 1, max: 9}", "too near to zero"),
        ("{kind: zipf}", "zipf"),
        ("{kind: empirical, values: {1: 1, '1': 9}}", "the same value stands twice"),
    ],
)
def test_wrong_lengths(text, message):
    with pytest.raises(ValidationError, match=message):
        lengths(yaml.safe_load(text))


def test_sizes_in_yaml():
    assert sizes("1024x768").value == (1024, 768)
    assert sizes([1024, 768]) == sizes({"kind": "fixed", "value": [1024, 768]}) == sizes(" 1024 x 768")
    choice = sizes(yaml.safe_load("{kind: choice, values: [[640, 480], 1024x768, 64x64], weights: [1, 3, 0]}"))
    drawn = choice.draw(stream(1, "test"), 10_000)
    assert drawn.shape == (10_000, 2) and set(map(tuple, drawn.tolist())) == {(640, 480), (1024, 768)}
    assert (drawn[:, 0] == 1024).mean() == pytest.approx(0.75, abs=0.02)
    assert sizes(choice.model_dump(mode="json")) == choice


def test_uniform_sizes():
    uniform = sizes(yaml.safe_load("{kind: uniform, width: {min: 100, max: 110}, height: {min: 50, max: 51}}"))
    drawn = uniform.draw(stream(1, "test"), 10_000)
    assert set(drawn[:, 0].tolist()) == set(range(100, 111)) and set(drawn[:, 1].tolist()) == {50, 51}
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05


def test_the_largest_size_is_the_one_with_most_rows():
    model = MODELS["qwen2-vl-2b"].model_copy(update={"max_pixels": 1_003_520})
    choice = sizes({"kind": "choice", "values": ["1024x1024", "1120x896", "4000x4000"], "weights": [1, 1, 1]})
    assert choice.largest(model) == (1120, 896)
    without = sizes({"kind": "choice", "values": ["1024x1024", "1120x896"], "weights": [1, 0]})
    assert without.largest(model) == (1024, 1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1024by768", "reads like 1024x768"),
        ("'0x768'", "greater than 0"),
        ("1x201", "aspect ratio"),
        ("{kind: choice, values: [[1, 201]]}", "aspect ratio"),
        ("{kind: choice, values: [[64, 64]], weights: [0]}", "all be zero"),
        ("{kind: uniform, width: {min: 5, max: 4}, height: {min: 5, max: 5}}", "min 5 exceeds max 4"),
        ("{kind: uniform, width: {min: 1, max: 400}, height: {min: 1, max: 5}}", "aspect ratio"),
        ("1024", "reads like 1024x768, got 1024"),
        ("[1024]", "reads like 1024x768, got 1 numbers"),
        ("65536x65536", "less than or equal to 65535"),
        ("{kind: uniform, width: {min: 400, max: 8000}, height: {min: 400, max: 8000}}", "at most 16777216 sizes"),
        ("{kind: choice, values: [[64, 64]], weights: [1.0e+308]}", "less than or equal to"),
    ],
)
def test_wrong_sizes(text, message):
    with pytest.raises(ValidationError, match=message):
        sizes(yaml.safe_load(text))
