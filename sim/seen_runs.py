"""Any run's folder as its clients saw it: one that was simulated, executed, or measured by a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.client_view import ClientView, Gaps
from sim.compare import simulated_again
from sim.compare_exact import same_run
from sim.live_output import LIVE, is_imported
from sim.measured_output import read_measured
from sim.recorded import RecordedRun, read_live, read_run
from sim.result import Run
from sim.token_times import gaps_by_request
from sim.twin import twin


def seen_run(folder: Path) -> ClientView:
    """Raises InputError, one line, where there is no run, or one of its files is not sound."""
    if is_imported(folder):
        return read_measured(folder)
    if (folder / LIVE).exists():
        return _executed(folder)
    run = read_run(folder)
    return view(run, simulated_again(run).run)


def _executed(folder: Path) -> ClientView:
    """Times of tokens are its twin's, if it is one."""
    live = read_live(folder, {})
    again = twin(live.resolved, live.plans)
    return view(live, again.run if same_run(again, live, "twin").identical else None)


def view(run: RecordedRun, again: Run | None) -> ClientView:
    """`again` is the same run with the times of its tokens, where there is one."""
    scenario, about = run.resolved.scenario, run.about
    source = f"{about['origin']}, {scenario.profile}"
    return ClientView(
        source,
        about["name"],
        run.requests,
        None if again is None else _in_order(again),
        origin=about["origin"],
        scenario=scenario,
    )


def _in_order(run: Run) -> Gaps:
    """Gaps by the ids of their requests, which finish in another order."""
    owners, gaps = gaps_by_request(run)
    order = np.argsort(owners, kind="stable")
    return owners[order], gaps[order]
