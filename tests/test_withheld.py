"""Withheld timings: every row is predicted by a fit that has not seen it, and the spread found is the one put in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sim.withheld import mean_errors, spread, withhold

STAGES = ("encoder", "prefill", "decode", "mixed")


def measured_rows(measured: list[float], values: list[int], kind: str = "size") -> pd.DataFrame:
    """The same rows of every stage, predicted at 1 ms each."""
    rows = pd.DataFrame({"total_ms": measured, "value": values, "kind": kind, "predicted": 1.0})
    return pd.concat(rows.assign(stage=stage) for stage in STAGES)


def test_no_row_is_predicted_by_a_fit_that_has_seen_its_group() -> None:
    rows = pd.DataFrame({"size": [1, 1, 2, 3], "context": [7, 8, 7, 8], "id": range(4)})

    def predict(rest: pd.DataFrame, part: pd.DataFrame) -> dict[str, np.ndarray]:
        assert not set(rest.id) & set(part.id)
        return {"one": np.full(len(part), float(len(rest))), "two": np.zeros(len(part))}

    out = withhold(rows, {"size": rows["size"], "context": rows.context}, predict)
    assert out.one.tolist() == [2, 2, 3, 3, 2, 2, 2, 2] and set(out.two) == {0.0}
    assert out.kind.tolist() == ["size"] * 4 + ["context"] * 4 and out.id.tolist() == [0, 1, 2, 3, 0, 2, 1, 3]


def test_a_single_value_is_predicted_from_itself() -> None:
    rows = pd.DataFrame({"size": [5, 5]})
    out = withhold(rows, {"size": rows["size"]}, lambda rest, part: {"predicted": np.full(2, float(len(rest)))})
    assert out.predicted.tolist() == [2, 2]


def test_errors_are_those_of_the_hardest_kind() -> None:
    easy, hard = measured_rows([1.0, 1.25], [1, 2]), measured_rows([1.0, 2.0], [1, 2], "context")
    assert set(mean_errors(pd.concat([easy, hard])).values()) == {25.0}


def test_spread_by_hand() -> None:
    """Groups at +20 % and 0 %, each +-2 %: within 4 * 0.02^2 / 2; between (0.2^2 + 0) / 2 less a half of that."""
    of = spread(measured_rows([1.22, 1.18, 1.02, 0.98], [1, 1, 2, 2])).decode
    within = 4 * 0.02**2 / 2
    assert of.noise.value == pytest.approx(within**0.5, abs=1e-4)
    assert of.bias.value == pytest.approx(((0.04 + 0) / 2 - within / 2) ** 0.5, abs=1e-4)
    assert (of.bias.unit, of.noise.unit) == ("1", "1")
    assert "2 withheld groups" in of.bias.source and "4 withheld timings" in of.noise.source


@pytest.mark.parametrize(("bias", "noise"), [(0.04, 0.02), (0.0, 0.05), (0.03, 0.0)])
def test_spread_is_what_was_put_in(bias: float, noise: float) -> None:
    rng, groups, each = np.random.default_rng(1), 400, 6
    measured = 1 + np.repeat(rng.normal(0, bias, groups), each) + rng.normal(0, noise, groups * each)
    of = spread(measured_rows(measured.tolist(), np.repeat(np.arange(groups), each).tolist())).encode
    assert of.bias.value == pytest.approx(bias, abs=0.005) and of.noise.value == pytest.approx(noise, abs=0.002)
