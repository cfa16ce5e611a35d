"""The live half's benchmark compares like with like: the rivals answer the same, and every figure is there."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/live.py, one round of a tiny model."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("bench_live", ROOT / "benchmarks" / "live.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MODEL", "tiny")
    monkeypatch.setattr(module, "ROUNDS", 1)
    logging.disable(logging.WARNING)  # as its main does
    yield module
    logging.disable(logging.NOTSET)


def test_text(live: ModuleType) -> None:
    result = live.compare(
        "text",
        {"num_requests": 3, "text_tokens": 20, "output_tokens": 4},
        ["executor", "generate_batch", "generate"],
    )
    assert result["same_answers"] == {"generate_batch": 3, "generate": 3}
    assert result["tokens"] == 12
    assert set(result["tokens_per_second"]) == {"executor", "generate_batch", "generate"}
    assert min(result["ratio"].values()) > 0
    assert set(result["bar"]) <= set(result["ratio"])


def test_images(live: ModuleType) -> None:
    result = live.compare(
        "images",
        {"num_requests": 2, "text_tokens": 9, "output_tokens": 3, "images": {"count": 2, "size": "112x112"}},
        ["executor", "generate"],
    )
    assert result["same_answers"] == {"generate": 2}
    assert set(result["bar"]) <= set(result["ratio"])


def test_host(live: ModuleType) -> None:
    result = live.host()
    assert set(result["bar"]) <= set(result["ms_by_decodes"])
    assert all(0 < figures["mean"] <= figures["max"] for figures in result["ms_by_decodes"].values())
