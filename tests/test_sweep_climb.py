"""The search for the greatest good rate, without a simulation: where it ends, and after how many tries."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.sweep_climb import Climb


def climbed(climb: Climb, knee: float) -> list[float]:
    """The rates that were tried where every rate up to `knee` is good."""
    tried = []
    while not climb.done:
        tried.append(climb.rate)
        climb.tell(climb.rate <= knee)
    return tried


def test_it_doubles_then_bisects() -> None:
    climb = Climb(4.0, tolerance=0.2, most=15)
    assert climbed(climb, 17) == [4, 8, 16, 32, 22.6274, 19.0273]
    assert (climb.good, climb.bad, climb.close) == (16, 19.0273, True)


def test_it_halves_from_a_rate_that_is_too_great() -> None:
    climb = Climb(4.0, tolerance=0.5, most=15)
    assert climbed(climb, 0.8) == [4, 2, 1, 0.5, 0.707107]
    assert (climb.good, climb.bad) == (0.707107, 1)


def test_it_gives_up_where_no_rate_is_good() -> None:
    climb = Climb(1.0, tolerance=0.02, most=5)
    assert climbed(climb, 0) == [1, 0.5, 0.25, 0.125, 0.0625]
    assert (climb.good, climb.close) == (None, False)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.001, 0.5))
def test_the_knee_lies_between_good_and_bad(start: float, knee: float, tolerance: float) -> None:
    climb = Climb(start, tolerance, 60)
    climbed(climb, knee)
    assert climb.good is not None and climb.bad is not None
    assert climb.good <= knee < climb.bad <= climb.good * (1 + tolerance) * (1 + 1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(2, 15))
def test_it_never_tries_more_often_than_it_may(start: float, knee: float, most: int) -> None:
    climb = Climb(start, 0.001, most)
    assert len(climbed(climb, knee)) <= most


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1, 4), st.floats(0.001, 0.5))
def test_once_the_knee_lies_between_two_rates_it_knows_how_many_are_left(knee: float, tolerance: float) -> None:
    climb = Climb(1.0, tolerance, 60)
    while climb.bad is None:
        climb.tell(climb.rate <= knee)
    expected = climb.left
    assert abs(len(climbed(climb, knee)) - expected) <= 1


def test_the_tries_of_a_two_percent_search() -> None:
    """Doubling to 16 takes five tries; an octave is within 2 % after six bisections: 2 ** (1 / 2 ** 6) = 1.011."""
    climb = Climb(1.0, 0.02, 15)
    assert len(climbed(climb, 11.3)) == 5 + math.ceil(math.log2(math.log(2) / math.log(1.02)))
