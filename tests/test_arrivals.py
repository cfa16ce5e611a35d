"""Arrival processes: their rates and variation, order, laziness, and errors."""

import itertools

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import Arrivals, InputError
from workloads.streams import stream

decode = TypeAdapter(Arrivals).validate_python
PROCESSES = [
    "{kind: at_once}",
    "{kind: constant, rate: 7}",
    "{kind: poisson, rate: 7}",
    "{kind: gamma, rate: 7, burstiness: 0.25}",
    "{kind: weibull, rate: 7, shape: 0.6}",
    "{kind: ramp, start_rate: 1, end_rate: 9, duration: 100}",
    "{kind: ramp, start_rate: 9, end_rate: 1, duration: 100}",
    "{kind: ramp, start_rate: 0, end_rate: 5, duration: 100}",
    "{kind: piecewise, segments: [{duration: 10, rate: 2}, {duration: 5, rate: 0}, {duration: 1, rate: 50}]}",
    "{kind: piecewise, repeat: true, segments: [{duration: 10, rate: 2}, {duration: 5, rate: 0}]}",
    "{kind: concurrency, users: 4}",
]


def times(text: str, n: int, seed: int = 1) -> np.ndarray:
    chunks = decode(yaml.safe_load(text)).chunks(stream(seed, "arrivals"))
    return np.concatenate(list(itertools.islice(chunks, n // 4096 + 1)))[:n]


def gaps(text: str, n: int = 100_000) -> np.ndarray:
    return np.diff(times(text, n)) / 1e9


@pytest.mark.parametrize("text", PROCESSES)
def test_integer_times_in_order_the_same_for_the_same_seed(text):
    arrivals = times(text, 20_000)
    assert arrivals.dtype == np.int64 and arrivals[0] >= 0 and (np.diff(arrivals) >= 0).all()
    assert np.array_equal(arrivals, times(text, 20_000))
    if not any(word in text for word in ("at_once", "constant", "concurrency")):
        assert not np.array_equal(arrivals, times(text, 20_000, seed=2))


@pytest.mark.parametrize("text", PROCESSES)
def test_yaml_round_trips(text):
    process = decode(yaml.safe_load(text))
    assert decode(process.model_dump(mode="json")) == process


def test_at_once_and_constant():
    assert not times("{kind: at_once}", 10_000).any() and not times("{kind: concurrency, users: 3}", 10_000).any()
    assert times("{kind: constant, rate: 4}", 3).tolist() == [0, 250_000_000, 500_000_000]
    assert times("{kind: constant, rate: 3}", 100_000)[-1] == round(99_999 / 3 * 1e9)  # no drift


@pytest.mark.parametrize(
    ("text", "variation"),
    [
        ("{kind: poisson, rate: 20}", 1),
        ("{kind: gamma, rate: 20, burstiness: 1}", 1),
        ("{kind: gamma, rate: 20, burstiness: 0.25}", 2),
        ("{kind: gamma, rate: 20, burstiness: 4}", 0.5),
        ("{kind: weibull, rate: 20, shape: 1}", 1),
        ("{kind: weibull, rate: 20, shape: 2}", 0.5227),
    ],
)
def test_renewal_processes_have_their_rate_and_variation(text, variation):
    """Gamma: CV 1/sqrt(burstiness). Weibull of shape 2 (Rayleigh): sqrt(4/pi - 1)."""
    waits = gaps(text)
    assert waits.mean() == pytest.approx(1 / 20, rel=0.03)
    assert waits.std() / waits.mean() == pytest.approx(variation, rel=0.03)


def count_between(arrivals: np.ndarray, start: float, end: float) -> int:
    return int(np.searchsorted(arrivals, end * 1e9) - np.searchsorted(arrivals, start * 1e9))


@pytest.mark.parametrize(("start", "end"), [(10, 200), (200, 10), (0, 100)])
def test_a_ramp_goes_linearly_and_then_stays(start, end):
    arrivals = times(f"{{kind: ramp, start_rate: {start}, end_rate: {end}, duration: 100}}", 60_000)
    middle, mean = (start + end) / 2, (3 * start + end) / 4
    assert count_between(arrivals, 0, 50) == pytest.approx(mean * 50, rel=0.05)
    assert count_between(arrivals, 0, 100) == pytest.approx(middle * 100, rel=0.05)
    assert count_between(arrivals, 100, 300) == pytest.approx(end * 200, rel=0.06)


def test_piecewise_rates_hold_the_last_or_repeat():
    segments = "[{duration: 100, rate: 20}, {duration: 50, rate: 0}, {duration: 100, rate: 80}]"
    held = times(f"{{kind: piecewise, segments: {segments}}}", 30_000)
    again = times(f"{{kind: piecewise, repeat: true, segments: {segments}}}", 30_000)
    for arrivals in (held, again):
        assert count_between(arrivals, 0, 100) == pytest.approx(2000, rel=0.1)
        assert count_between(arrivals, 100, 150) == 0
        assert count_between(arrivals, 150, 250) == pytest.approx(8000, rel=0.05)
    assert count_between(held, 250, 300) == pytest.approx(4000, rel=0.1)
    assert count_between(again, 250, 350) == pytest.approx(2000, rel=0.1)
    assert count_between(again, 350, 400) == 0


def test_poisson_counts_vary_as_poisson_counts_do():
    arrivals = times(
        "{kind: piecewise, repeat: true, segments: [{duration: 1, rate: 5}, {duration: 1, rate: 15}]}", 90_000
    )
    counts = np.bincount((arrivals // 10**9).astype(int))[:8000]
    for phase, rate in ((0, 5), (1, 15)):
        assert counts[phase::2].mean() == pytest.approx(rate, rel=0.03)
        assert counts[phase::2].var() == pytest.approx(rate, rel=0.1)


def test_a_million_arrivals_need_no_million_numbers_at_once():
    chunks = decode({"kind": "poisson", "rate": 100}).chunks(stream(1, "arrivals"))
    assert max(len(chunk) for chunk in itertools.islice(chunks, 245)) == 4096


def test_think_time_is_fixed_or_exponential():
    rng = stream(1, "think")
    assert decode({"kind": "concurrency", "users": 2}).think(rng) == 0
    assert decode({"kind": "concurrency", "users": 2, "think_time": 1.5}).think(rng) == 1_500_000_000
    assert decode({"kind": "concurrency", "users": 2, "think_time": 2}).think(rng) == 2_000_000_000
    thinker = decode({"kind": "concurrency", "users": 2, "think_time": {"mean": 2}})
    assert np.mean([thinker.think(rng) for _ in range(20_000)]) == pytest.approx(2e9, rel=0.05)


@given(st.floats(1e-3, 1e6), st.floats(0.05, 50), st.integers(0, 2**32))
def test_any_rate_and_burstiness_keep_order(rate, shape, seed):
    for process in (
        {"kind": "gamma", "rate": rate, "burstiness": shape},
        {"kind": "weibull", "rate": rate, "shape": shape},
    ):
        arrivals = next(decode(process).chunks(stream(seed, "arrivals")))
        assert (np.diff(arrivals) >= 0).all() and arrivals[0] >= 0


def test_a_rate_too_low_for_the_clock():
    chunks = decode({"kind": "constant", "rate": 1e-9}).chunks(stream(1, "arrivals"))
    assert next(chunks) / 1e18 == pytest.approx([0, 1, 2, 3, 4])  # what there is time for
    with pytest.raises(InputError, match="146 years"):
        next(chunks)


EXTREMES = st.sampled_from([1e-9, 1e-6, 1e-3, 1.0, 3.7, 1e3, 1e6, 1e9])
SEGMENT = st.fixed_dictionaries({"duration": EXTREMES, "rate": EXTREMES | st.just(0.0)})
EXTREME_PROCESSES = st.one_of(
    st.builds(lambda kind, rate: {"kind": kind, "rate": rate}, st.sampled_from(["constant", "poisson"]), EXTREMES),
    st.builds(lambda rate, n: {"kind": "gamma", "rate": rate, "burstiness": max(n, 1e-6)}, EXTREMES, EXTREMES),
    st.builds(lambda rate, n: {"kind": "weibull", "rate": rate, "shape": max(n, 0.05)}, EXTREMES, EXTREMES),
    st.builds(
        lambda start, end, time: {"kind": "ramp", "start_rate": start, "end_rate": end, "duration": time},
        EXTREMES | st.just(0.0), EXTREMES, EXTREMES,
    ),
    st.builds(
        lambda segments, rate, repeat: {
            "kind": "piecewise", "segments": [*segments, {"duration": 1, "rate": rate}], "repeat": repeat
        },
        st.lists(SEGMENT, max_size=4), EXTREMES, st.booleans(),
    ),
)  # fmt: skip


@given(EXTREME_PROCESSES, st.integers(0, 2**32))
def test_extreme_processes_keep_order_until_the_clock_ends(process, seed):
    latest = 0
    try:
        for arrivals in itertools.islice(decode(process).chunks(stream(seed, "arrivals")), 3):
            assert arrivals[0] >= latest and (np.diff(arrivals) >= 0).all()
            latest = arrivals[-1]
    except InputError as error:
        assert "146 years" in str(error)
    assert latest <= 2**62


def test_thousands_of_segments():
    segments = [{"duration": 0.1, "rate": index % 7} for index in range(2100)]
    arrivals = times(f"{{kind: piecewise, repeat: true, segments: {segments}}}", 20_000)
    assert len(arrivals) / (arrivals[-1] / 1e9) == pytest.approx(3, rel=0.03)


def test_a_ramp_to_almost_nothing_ends():
    with pytest.raises(InputError, match="rate is too low"):
        times("{kind: ramp, start_rate: 9, end_rate: 1.0e-9, duration: 10}", 4096 * 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kind: poisson}", "rate"),
        ("{kind: poisson, rate: 0}", "greater than 0"),
        ("{kind: poisson, rate: -1}", "greater than 0"),
        ("{kind: constant, rate: .inf}", "finite"),
        ("{kind: gamma, rate: .nan, burstiness: 1}", "finite"),
        ("{kind: gamma, rate: 1, burstiness: 0}", "greater than or equal to 0.000001"),
        ("{kind: gamma, rate: 1, burstiness: 1.0e-300}", "greater than or equal to 0.000001"),
        ("{kind: poisson, rate: 5.0e-324}", "4.94066e-324 is too near to zero; the least is 1e-09"),
        ("{kind: poisson, rate: 1.0e+300}", "less than or equal to 1000000000"),
        ("{kind: weibull, rate: 1, shape: 1.0e+300}", "less than or equal to 1000000000"),
        ("{kind: ramp, start_rate: 1.0e-300, end_rate: 1, duration: 1}", "too near to zero"),
        ("{kind: ramp, start_rate: 1, end_rate: 1, duration: 1.0e+300}", "less than or equal to"),
        ("{kind: piecewise, segments: [{duration: 0, rate: 1}]}", "greater than 0"),
        ("{kind: piecewise, segments: [{duration: 1, rate: 1.0e-300}, {duration: 1, rate: 1}]}", "too near to zero"),
        ("{kind: concurrency, users: 1000000000}", "less than or equal to 1000000"),
        ("{kind: concurrency, users: 1, think_time: 1.0e+18}", "less than or equal to 1000000000"),
        ("{kind: concurrency, users: 1, think_time: {mean: 1.0e+18}}", "less than or equal to 1000000000"),
        ("{kind: weibull, rate: 1, shape: 0}", "greater than or equal to 0.05"),
        ("{kind: ramp, start_rate: 1, end_rate: 0, duration: 1}", "greater than 0"),
        ("{kind: ramp, start_rate: 1, end_rate: 1, duration: 0}", "greater than 0"),
        ("{kind: piecewise, segments: []}", "at least 1"),
        ("{kind: piecewise, repeat: true, segments: [{duration: 1, rate: 0}]}", "all be zero"),
        ("{kind: piecewise, segments: [{duration: 1, rate: 1}, {duration: 1, rate: 0}]}", "last segment stays"),
        ("{kind: concurrency, users: 0}", "greater than 0"),
        ("{kind: concurrency, users: 1, think_time: -1}", "greater than or equal to 0"),
        ("{kind: burst}", "burst"),
    ],
)
def test_wrong_arrivals(text, message):
    with pytest.raises(ValidationError, match=message):
        decode(yaml.safe_load(text))
