"""A weighted sample says what numpy says of the written-out array."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.samples import WeightedSample

PAIRS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 6)), max_size=40)


def sample(pairs: list[tuple[int, int]]) -> WeightedSample:
    values, weights = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return WeightedSample(values, weights)


@given(PAIRS, st.one_of(st.sampled_from([0, 50, 90, 95, 99, 99.9, 100]), st.floats(0, 100)))
def test_equals_numpy_on_the_expanded_array(pairs: list[tuple[int, int]], q: float) -> None:
    weighted = sample(pairs)
    expanded = np.repeat(weighted.values, weighted.weights)
    if not expanded.size:
        assert math.isnan(weighted.mean()) and math.isnan(weighted.std()) and math.isnan(weighted.percentile(q))
        return
    assert weighted.mean() == expanded.mean()
    assert weighted.percentile(q) == np.percentile(expanded, q)
    assert weighted.std() == pytest.approx(expanded.std(), rel=1e-9, abs=1e-3)


@given(PAIRS)
def test_the_cdf_counts_what_is_at_or_below(pairs: list[tuple[int, int]]) -> None:
    weighted = sample(pairs)
    expanded = weighted.expand()
    values, shares = weighted.cdf()
    assert (np.diff(values) > 0).all()
    if expanded.size:
        assert shares == pytest.approx([(expanded <= value).mean() for value in values])
        assert shares[-1] == 1


def test_expand_is_in_seconds() -> None:
    assert sample([(10**8, 2), (2 * 10**8, 1)]).expand().tolist() == [0.1, 0.1, 0.2]


def test_since_cuts_off_a_warm_up() -> None:
    gaps = WeightedSample(np.array([5, 6, 7]), np.array([1, 2, 3]), ends=np.array([10, 20, 30]))
    assert gaps.since(10).size == 5
    with pytest.raises(ValueError, match="without ends"):
        sample([(1, 1)]).since(0)
