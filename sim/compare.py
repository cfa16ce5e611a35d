"""Three checks of a live run: its twin, its plans priced by the cost model, and a simulation that ran on its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sim.compare_exact import Exact, same_run
from sim.compare_forced import Forced, forced
from sim.compare_free import Free, Side, free
from sim.cost_model import CostModel
from sim.differences import iterations_that_differ, requests_that_differ
from sim.profiles import Profile
from sim.recorded import RecordedLive, RecordedRun
from sim.result import Run
from sim.same_scenario import check_profile, check_same
from sim.token_times import gaps_by_request
from sim.twin import Rerun, rerun, twin
from workloads.errors import InputError


@dataclass(frozen=True, eq=False)
class Comparison:
    """A simulated run beside a live one of the same scenario."""

    label: str  # empty for a command's only pair
    run: RecordedRun
    live: RecordedLive
    profile: Profile  # that prices the live plans
    profile_name: str
    notes: list[str]  # what may differ and does
    simulated: Rerun  # the simulated run once more, for what its folder does not tell
    twin: Rerun
    twin_check: Exact
    forced: Forced
    exact: Exact | None  # the simulation against the live run, where both were told the time by one cost model
    free: Free

    @property
    def identical(self) -> bool:
        """Whether all that must be equal is."""
        return self.twin_check.identical and (self.exact is None or self.exact.identical)

    @cached_property
    def measured(self) -> Run | None:
        """The live run, tokens' times included: its twin, if it is one."""
        return self.twin.run if self.twin_check.identical else None

    def content(self) -> dict[str, Any]:
        """As it stands in `compare.json`."""
        source = {"name": self.profile_name, "digest": self.profile.digest, "label": self.profile.label}
        return {
            "name": self.live.about["name"],
            "policy": self.live.resolved.scenario.policy.kind,
            "simulated": str(self.run.folder),
            "live": str(self.live.folder),
            "clock": self.live.clock,
            "identical": self.identical,
            "notes": self.notes,
            "twin": exact_content(self.twin_check),
            "teacher_forced": {"profile": source, **self.forced.content()},
            "free_running": {
                "exact": None if self.exact is None else exact_content(self.exact),
                **self.free.content(),
            },
        }


def exact_content(check: Exact) -> dict[str, Any]:
    return {
        "identical": check.identical,
        "iterations": check.num_iterations,
        "requests": check.num_requests,
        "partial": check.partial,
        "difference": None if check.difference is None else str(check.difference),
    }


def _other_clock(profile: Profile, clock: str) -> list[str]:
    timed = profile.source.clock
    if timed in (None, clock) or clock == "model":
        return []
    return [f"the profile was timed by {timed}, the live run by {clock}: part of every error is the clocks'"]


def compare(
    run: RecordedRun, live: RecordedLive, profile: Profile | None = None, profile_name: str = "", label: str = ""
) -> Comparison:
    """All three checks; `profile` prices the live plans in place of the live scenario's own.

    Raises InputError where the two are not of one scenario, or the simulated folder is not what it says.
    """
    notes = check_same(run, live) + _other_clock(profile or live.resolved.profile, live.clock)
    check_profile(live)
    simulated, again = simulated_again(run), twin(live.resolved, live.plans)
    twin_check = same_run(again, live, "twin")
    priced = profile or live.resolved.profile
    measure = live.resolved.scenario.measure
    measured = again.run if twin_check.identical else None
    return Comparison(
        label=label,
        run=run,
        live=live,
        profile=priced,
        profile_name=profile_name or live.resolved.scenario.profile,
        notes=notes,
        simulated=simulated,
        twin=again,
        twin_check=twin_check,
        forced=forced(live.plans, CostModel.from_profile(priced)),
        exact=same_run(simulated, live, "simulated") if live.clock == "model" else None,
        free=free(
            Side(run.requests, gaps_by_request(simulated.run)),
            Side(live.requests, None if measured is None else gaps_by_request(measured)),
            warmup_requests=measure.warmup_requests,
            warmup=measure.warmup,
        ),
    )


def simulated_again(run: RecordedRun) -> Rerun:
    """The simulated run once more: its folder has neither plans nor the times of tokens. InputError if it differs."""
    if run.verdict == "interrupted":
        raise InputError(f"{run.folder}: was interrupted; simulate it to its end first")
    again = rerun(run.resolved)
    found = requests_that_differ(again.run.requests, run.requests, "now", "then")
    if found is None and run.iterations is not None:
        found = iterations_that_differ(again.run.iterations, run.iterations, "now", "then")
    if found is not None:
        raise InputError(
            f"{run.folder}: is not what its scenario simulates to (another version or profile?), simulate it again; "
            f"{found}"
        )
    return again
