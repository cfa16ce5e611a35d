"""The simulated world with one draw of what its profile leaves uncertain: prices are blurred, decisions follow."""

from __future__ import annotations

import numpy as np

from policies.encode_only import EncodeState
from policies.plan import IterationPlan
from policies.serving import ServingState
from sim.backend import Outcome
from sim.blur import Blur, Stage, check_spread
from sim.decode_run import unrolled
from sim.profiles import Profile
from sim.recorder import Recorder
from sim.scenario import Scenario
from sim.simulated import EncodeBackend, SimulatedBackend, backend_type, simulated_backend

MOST = 4096  # iterations taken in one step


class UncertainBackend(SimulatedBackend):
    """Prices plans as ever, then draws what they take."""

    blur: Blur
    num_iterations = 0  # launched so far

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Outcome:
        number = self.num_iterations
        if plan.encode or plan.prefill or max_iterations == 1:
            self.num_iterations += 1
            return self._blurred(super().launch(plan, 1, horizon), plan, number)
        run, _ = self.cost.decode_run(plan.num_decodes, plan.context_tokens, min(max_iterations, MOST), horizon)
        totals = self.blur.decodes(unrolled(run), number)
        ends = np.cumsum(totals)
        count = min(int(np.searchsorted(ends, horizon)) + 1, len(totals))  # the last one ends at the horizon or later
        self.num_iterations += count
        first, cost = int(totals[0]), self.cost
        drawn = run._replace(num_iterations=count) if count > 1 else None
        return Outcome(cost.host, 0, first - cost.host, int(ends[count - 1]), drawn)

    def _blurred(self, outcome: Outcome, plan: IterationPlan, number: int) -> Outcome:
        encode = self.blur.one(outcome.encode, "encode", number)
        compute = self.blur.one(outcome.compute, _stage(plan), number)
        return outcome._replace(encode=encode, compute=compute, total=outcome.host + encode + compute)


class UncertainEncodeBackend(UncertainBackend, EncodeBackend):
    """Of an engine that only encodes."""


def engine_backend(
    scenario: Scenario, profile: Profile, state: ServingState, recorder: Recorder, rank: int = 0
) -> SimulatedBackend:
    """Of one simulated engine, of several the one of this `rank`; certain of its prices unless the scenario has a draw.

    Raises InputError where the profile has nothing to draw from.
    """
    number = scenario.simulation.draw
    if number is None:
        return simulated_backend(backend_type(state), profile, state, scenario.model)
    kind = UncertainEncodeBackend if isinstance(state, EncodeState) else UncertainBackend
    backend = simulated_backend(kind, profile, state, scenario.model)
    assert isinstance(backend, UncertainBackend)
    backend.blur = Blur(check_spread(profile, scenario.profile), number, scenario.seed, rank, backend.cost.host)
    recorder.iterations.blur = backend.blur.decodes
    return backend


def _stage(plan: IterationPlan) -> Stage:
    if not plan.prefill:
        return "decode"
    return "mixed" if plan.num_decodes else "prefill"
