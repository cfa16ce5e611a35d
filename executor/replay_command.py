"""One `tandem replay`: every variant checked, then executed on the device and written as a simulated run is."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from executor.devices import device_name
from executor.live import LiveRun, replay
from executor.models import LoadedModel
from executor.options import Options
from executor.prepare import load_for, prepare
from sim.command import RunCommand
from sim.files import writing
from sim.live_output import CALIBRATION, write_live_run
from sim.progress import ProgressBar
from sim.replications import Several
from sim.result import Run
from sim.scenario import Scenario
from sim.tables import say
from sim.variants import Variant
from sim.world import Resolved
from workloads.errors import InputError

PACKAGES = ("torch", "transformers")


class ReplayCommand(RunCommand):
    """Raises InputError for wrong input and for whatever the device cannot do, before anything is run."""

    suffix = ".live"

    def __init__(
        self, files: Sequence[Path], sets: Sequence[str], out: Path | None, plots: bool, options: Options
    ) -> None:
        self.options = options
        self.loaded: dict[tuple[str, int], LoadedModel] = {}  # by the name asked for, and the seed of the weights
        self.used: dict[int, LoadedModel] = {}  # by the id of what `check` returned
        super().__init__(files, sets, out, plots)

    def check(self, variant: Variant) -> Resolved:
        return variant.resolve(self._prepare)

    def _prepare(self, scenario: Scenario) -> Resolved:
        loaded = self._load(scenario)
        checked = _once(prepare(scenario, loaded, self.options).checked)
        self.used[id(checked)] = loaded
        return checked

    def _load(self, scenario: Scenario) -> LoadedModel:
        key = self.options.model or scenario.model.name, scenario.seed
        if key not in self.loaded:
            self.loaded[key] = load_for(scenario, self.options)
        return self.loaded[key]

    def execute(self, resolved: Resolved, label: str, folder: Path, progress: ProgressBar) -> Run:
        loaded = self.used[id(resolved)]
        say(self.console, f"{label}: {loaded.name} on {device_name(loaded.device)}")
        start = time.perf_counter()
        live = replay(resolved, loaded, self.options, progress=progress)
        about = about_live(live, time.perf_counter() - start)
        write_interleaved(live, folder)
        write_live_run(live.run, label, folder, plans=live.plans, tokens=live.tokens, about=about)
        return live.run


def _once(checked: Resolved) -> Resolved:
    """A live run is one run, and takes what it takes."""
    scenario = checked.scenario
    if scenario.simulation.draw is not None:
        raise InputError("simulation.draw: a live run draws nothing; leave it out")
    if scenario.replications == 1:
        return checked
    note = f"replications are of simulations: this is one run, with seed {scenario.seed}"
    return Several(checked, 1).single()._replace(notes=[*checked.notes, note])


def write_interleaved(live: LiveRun, folder: Path) -> None:
    """What was timed beside the run, ready for `tandem fit`; an earlier run's goes."""
    path = folder / CALIBRATION
    if live.world.interleaved is None:
        with writing(folder):
            path.unlink(missing_ok=True)
    else:
        live.world.interleaved.calibration(live.run.name, live.world.clock, live.run.partial).write(path)


def about_live(live: LiveRun, elapsed: float) -> dict[str, Any]:
    """What executed the run and what only it can tell, for live.json."""
    world, loaded = live.world, live.world.loaded
    host = live.run.iterations["host"].to_numpy()
    return {
        "device": {"name": device_name(loaded.device), "type": str(loaded.device)},
        "model": {"name": loaded.name, "dtype": loaded.dtype_name},
        "clock": world.clock,
        "options": world.options.about(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "elapsed_s": round(elapsed, 3),  # warming up included
        "host_ms": {"mean": _ms(np.mean(host)), "p99": _ms(np.quantile(host, 0.99))} if len(host) else None,
        "memory": world.memory(),
        "notes": world.notes,
    }


def _ms(seconds: np.floating[Any]) -> float:
    return round(float(seconds) * 1e3, 6)
