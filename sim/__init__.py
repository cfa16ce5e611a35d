"""Tandem's simulator: `from sim import Scenario, run; run("scenarios/bursty_images.yaml").summary`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.result import Run
from sim.run import run
from sim.scenario import Scenario

if TYPE_CHECKING:
    from sim.run_html import SideBySide


def side_by_side(runs: Mapping[str, Run]) -> SideBySide:
    """Runs by their labels, for a notebook to show: `side_by_side({"fcfs": a, "footprint": b}).plot.ttft()`."""
    from sim.run_html import SideBySide  # with matplotlib, which takes half a second

    return SideBySide(list(runs.items()))


__all__ = ["Run", "Scenario", "run", "side_by_side"]
