"""What becomes of one point, wherever it is simulated: a row of figures, or the reason why there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.output import write_run
from sim.profiles import load_profile
from sim.result import Run
from sim.run import simulate_resolved
from sim.scenario import Scenario
from sim.sweep_points import Point, identity
from sim.world import Resolved
from workloads.errors import InputError

Row = dict[str, Any]  # verdict, reason, load, and the figures of `summary.json`

FINISHED, INVALID, FAILED = "finished", "invalid", "failed"


def simulated(id: str, scenario: str, folder: Path | None = None) -> Row:
    """The row of a resolved scenario, given as JSON; into `folder`, if any, go its tables as `tandem run` writes them.

    Raises InputError where the files that it names, profile and trace, are not those that its id stands for.
    """
    asked = Scenario.model_validate(json.loads(scenario))
    if identity(asked) != id:
        raise InputError(f"point {id}: another version here, or another profile or trace, than where the sweep began")
    try:
        run = simulate_resolved(Resolved(asked, load_profile(asked.profile), []))
    except Exception as error:  # one point's, whatever it is: the others go on
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return {"verdict": FAILED, "reason": reason}
    if run.partial:
        raise KeyboardInterrupt
    if folder is not None:
        write_run(run, id, folder)
    return _row(run)


def invalid(point: Point) -> Row:
    """Of one that is no scenario."""
    return {"verdict": INVALID, "reason": point.reason}


def _row(run: Run) -> Row:
    reasons = [reason for reason in (*run.notes, *dict.fromkeys(run.blockers.values())) if run.verdict != FINISHED]
    return {"verdict": run.verdict, "reason": "; ".join(reasons), "load": run.load, **run.summary}
