"""The fidelity benchmark passes where every error is within its bar, and nowhere else."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def fidelity() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "fidelity.py"
    spec = importlib.util.spec_from_file_location("bench_fidelity", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def comparison(identical: bool = True, **errors: float) -> dict[str, Any]:
    told = {"mean_ttft_ms": 5.0, "mean_itl_ms": -5.0, "p90_ttft_ms": -15.0, "p90_itl_ms": 15.0} | errors
    figures = {name: {"error_percent": value} for name, value in told.items()}
    return {"identical": identical, "free_running": {"figures": figures}}


def test_all_errors_at_their_bars_pass(fidelity: ModuleType) -> None:
    result = fidelity.judged(comparison())
    assert result["passed"] and result["errors_percent"]["mean_itl_ms"] == -5


@pytest.mark.parametrize("name", ["mean_ttft_ms", "mean_itl_ms", "p90_ttft_ms", "p90_itl_ms"])
def test_one_error_beyond_its_bar_fails(fidelity: ModuleType, name: str) -> None:
    bar = fidelity.BARS[name]
    assert not fidelity.judged(comparison(**{name: bar + 0.01}))["passed"]
    assert not fidelity.judged(comparison(**{name: -bar - 0.01}))["passed"]


def test_a_twin_that_differs_fails(fidelity: ModuleType) -> None:
    assert not fidelity.judged(comparison(identical=False))["passed"]
