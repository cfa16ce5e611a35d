"""Runs a scenario in the simulated world and hands back its tables, figures and verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.beyond import priced_outside
from sim.clock import now
from sim.engine import OutOfMemoryError
from sim.heap import reuse_large_arrays
from sim.interrupts import between_events
from sim.pool_result import PooledRun
from sim.pool_world import PooledWorld
from sim.result import Run
from sim.scenario import Scenario
from sim.world import Resolved, World, resolve
from sim.worlds import world_of
from workloads.errors import InputError
from workloads.frozen import LATEST

TOO_LONG = "the run goes past 146 years: iterations take too long with the profile's coefficients"
Progress = Callable[[int], None]  # is told how many requests are done


def run(
    scenario: str | Path | Scenario,
    set: Mapping[str, Any] | None = None,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    uncertainty: int | None = None,
) -> Run:
    """Simulate a scenario, given as a file or as an object; `set` changes dotted paths of a file first.

    One with replications gives its first run, with the summary of all of them, which run in `jobs` processes, by
    default one a core. With `uncertainty`, so many runs, each with the next seed and a draw of what the profile leaves
    uncertain. An interrupt (Ctrl-C) ends it early: the result then is `partial`. Raises InputError for wrong input.
    """
    if not isinstance(scenario, Scenario):
        scenario = Scenario.load(scenario, set)
    elif set:
        raise InputError("set goes with a scenario file; use model_copy on an object")
    if scenario.replications == 1 and uncertainty is None:
        return simulate(scenario, progress=progress)
    from sim.replications import Several, simulate_several  # which simulates as this module does

    several = Several(resolve(scenario), uncertainty or scenario.replications, uncertainty is not None)
    return simulate_several(several, progress=progress, jobs=jobs)


def simulate(scenario: Scenario, *, progress: Progress | None = None) -> Run:
    """One run from its first event to its last, whatever the scenario's replications."""
    return simulate_resolved(resolve(scenario), progress=progress)


def simulate_resolved(checked: Resolved, *, progress: Progress | None = None) -> Run:
    """As `simulate`, of a scenario that has been resolved before."""
    return serve(world_of(checked, progress), checked.notes)


def serve(world: World, notes: list[str]) -> Run:
    """A world from its first event to its last, whatever executes in it."""
    reuse_large_arrays()
    verdict = "finished"
    try:
        with _few_collections(), between_events(world.env):
            world.env.run()
    except KeyboardInterrupt:
        verdict = "interrupted"
    except OutOfMemoryError as error:
        verdict, notes = "out of memory", [*notes, str(error)]
    except OverflowError as error:
        raise InputError(TOO_LONG) from error
    if now(world.env) > LATEST:
        raise InputError(TOO_LONG)
    if verdict == "finished" and world.recorder.under_way:
        verdict = "stalled"
    blocked = _close(world, verdict)
    notes = [*notes, *priced_outside(world.priced)]
    told: dict[str, Any] = {"verdict": verdict, "notes": notes, "blockers": blocked}
    return PooledRun(world, **told) if isinstance(world, PooledWorld) else Run(world, **told)


def _close(world: World, verdict: str) -> dict[int, str]:
    """Whoever is left gets a row that says so, with its blocker if nothing could happen any more."""
    status = "stalled" if verdict == "stalled" else "unfinished"
    reasons = world.blockers() if verdict == "stalled" else {}
    for request in list(world.recorder.under_way):
        world.leave_unfinished(request, status, reasons.get(request, f"the run was {verdict}"))
    return {request.id: reason for request, reason in reasons.items()}


@contextmanager
def _few_collections() -> Iterator[None]:
    """What a run makes lives until its end or dies by reference count, so looking for cycles is wasted time."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


__all__ = ["Run", "run", "serve", "simulate", "simulate_resolved"]
