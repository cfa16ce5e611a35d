"""Tandem's simulator: `from sim import Scenario, run; run("scenarios/bursty_images.yaml").summary`."""

from sim.result import Run
from sim.run import run
from sim.scenario import Scenario

__all__ = ["Run", "Scenario", "run"]
