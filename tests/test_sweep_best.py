"""The best settings of a sweep, by hand: means, Student's intervals, differences seed by seed."""

import numpy as np
import pytest

from sim.sweep_best import by_setting, ranked

A, B, C = {"x": 1}, {"x": 2}, {"x": 3}
T = 4.302652729911275  # 97.5 % of Student's t with 2 degrees of freedom, from tables


def test_the_greatest_mean_comes_first_with_its_interval() -> None:
    first, second = ranked([(A, np.array([1.0, 2.0, 3.0])), (B, np.array([2.0, 3.0, 7.0]))])
    assert (first.setting, first.figure.mean, first.behind) == (B, 4, None)
    assert first.figure.half == pytest.approx(T * 7**0.5 / 3**0.5)  # their variance is (4 + 1 + 9) / 2
    assert (second.setting, second.figure.mean) == (A, 2)


def test_differences_are_taken_seed_by_seed() -> None:
    """What both have in common of the seeds' spread is no uncertainty of their difference."""
    _, second = ranked([(A, np.array([10.0, 20.0, 30.0])), (B, np.array([9.0, 19.5, 28.5]))])
    assert second.behind is not None
    assert second.behind.mean == -1
    assert second.behind.half == pytest.approx(T * 0.5 / 3**0.5)


def test_the_least_may_be_the_best() -> None:
    values = [(A, np.array([3.0])), (B, np.array([1.0])), (C, np.array([2.0]))]
    assert [one.setting for one in ranked(values, least=True)] == [B, C, A]
    assert [one.setting for one in ranked(values)] == [A, C, B]


def test_one_replication_has_no_interval() -> None:
    first, second = ranked([(A, np.array([2.0])), (B, np.array([1.0]))])
    assert first.figure.half is None and second.behind is not None and second.behind.half is None


def test_who_misses_a_value_is_not_ranked() -> None:
    values = [(A, 1.0), (B, 2.0), (A, 3.0), (B, None)]
    assert [(setting, found.tolist()) for setting, found in by_setting(values)] == [(A, [1.0, 3.0])]
    assert ranked([]) == []
