"""Tables in the formula's place: straight between timings, as the formula goes beyond them, never falling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cost_model import ROUND, listed

from sim.cost_tables import EncodeTable, GemmTable, Tables

GEMM = GemmTable(tokens=(10, 20, 21, 100), ms=(100.0, 110.0, 200.0, 595.0), source="by hand")
ENCODE = EncodeTable(images=(1, 3), tokens=(10, 20), ms=((1.0, 5.0), (2.0, 9.0)), source="by hand")
TABLED = replace(ROUND, tables=Tables(encode=ENCODE, gemm=GEMM).scaled(encode=1000.0, gemm=1.0), encode_offset=100.0)


def test_gemm_by_hand() -> None:
    def formula(tokens: float) -> float:
        return 7 + tokens

    assert [GEMM.at(tokens, formula) for tokens in (10, 15, 20, 21, 60.5)] == [100, 105, 110, 200, 397.5]
    assert GEMM.at(3, formula) == 100 * 10 / 17  # below and above, in the formula's proportion
    assert GEMM.at(207, formula) == pytest.approx(595 * 214 / 107)


def test_encode_by_hand() -> None:
    def formula(images: float, tokens: float) -> float:
        return 1 + images * tokens

    assert ENCODE.at(1, 10, formula) == 1 and ENCODE.at(3, 20, formula) == 9
    assert ENCODE.at(2, 10, formula) == 1.5 and ENCODE.at(1, 15, formula) == 3 and ENCODE.at(2, 15, formula) == 4.25
    assert ENCODE.at(6, 20, formula) == pytest.approx(9 * 121 / 61)
    assert ENCODE.at(3, 40, formula) == pytest.approx(9 * 121 / 61)
    assert ENCODE.at(1, 5, formula) == pytest.approx(6 / 11)


def test_priced_by_hand() -> None:
    """Two frames of 15 tokens; then 10 and 20 tokens, as 900 / 500 frames of 500 / 30 tokens."""
    assert TABLED.encode(30, 450) == 100 + 4250
    images, size = 900 / 500, 500 / 30
    share, part = (size - 10) / 10, (images - 1) / 2
    few, many = 1 + share * 4, 2 + share * 7
    assert TABLED.encode(30, 500) == round(100 + 1000 * (few + part * (many - few)))
    assert TABLED.encode(0, 0) == 0
    assert TABLED.compute([(60, 10), (40, 0)], 0, 0) == 595 + 50 + 300 + 1600
    assert TABLED.compute([], 15, 900) == 105 + 20 + 75 + 450


def test_tables_leave_the_offset_to_the_corrections() -> None:
    """Beyond the table it is the encoder's time that grows as the formula does, not what is added to it."""
    formula = [ROUND.encode_fixed - 100 + 2.0 * n * s + 0.5 * n * s**2 for n, s in ((3, 20), (6, 20))]
    assert TABLED.encode(120, 2400) == round(100 + 9000 * formula[1] / formula[0])


@given(st.floats(0.5, 400), st.floats(0.5, 400), st.floats(0, 50), st.floats(0, 50))
def test_more_work_never_takes_less(images: float, tokens: float, more: float, larger: float) -> None:
    def linear(tokens: float) -> float:
        return 7 + tokens

    def formula(images: float, tokens: float) -> float:
        return 1 + images * tokens + images * tokens**2

    assert GEMM.at(tokens + larger, linear) >= GEMM.at(tokens, linear) * (1 - 1e-12)
    assert ENCODE.at(images + more, tokens + larger, formula) >= ENCODE.at(images, tokens, formula) * (1 - 1e-12)


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(1, 64), st.integers(1, 10**9))
def test_decode_runs_are_single_iterations_to_the_bit(num_decodes: int, context: int, n: int, horizon: int) -> None:
    cut, total = TABLED.decode_run(num_decodes, context, n, horizon)
    run = listed(cut)
    assert run == [TABLED.host + TABLED.compute([], num_decodes, context + k * num_decodes) for k in range(len(run))]
    assert total == sum(run)
