"""The twin of a live run: the same loop fed with the live run's own times, to see whether it decides the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.backend import AccountingBackend, Outcome
from sim.differences import Difference, fields_that_differ
from sim.members import Members
from sim.plan_line import PlanLine
from sim.plan_log import PlanLines, PlanLog
from sim.result import Run
from sim.run import serve
from sim.world import Resolved, World


class TwinStoppedError(Exception):
    """There is nothing to feed back any more: the plans ran out, or they are not the twin's."""


class RecordedBackend:
    """Gives back what each iteration of a plan log took and whom it failed, as long as the plans are the same."""

    peak_encoder_bytes = 0  # of no device

    def __init__(self, recorded: Sequence[PlanLine]) -> None:
        self.recorded = recorded
        self.difference: Difference | None = None  # why it stopped before the plans ran out
        self.ran_out = False  # one more iteration was asked for
        self.allocation_failures = 0
        self.num_given = 0
        self._lines = PlanLines()

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> tuple[IterationPlan, PlanLine]:
        """Raises TwinStoppedError where the plans end or differ."""
        line = self._lines.line(plan)
        if self.num_given == len(self.recorded):
            self.ran_out = True
            raise TwinStoppedError
        recorded = self.recorded[self.num_given]
        if line.planned() != recorded.planned():
            self._stop(fields_that_differ(line.planned(), recorded.planned()))
        self.num_given += 1
        return plan, recorded

    def wait(self, handle: tuple[IterationPlan, PlanLine]) -> Outcome:
        plan, recorded = handle
        host, encode, compute = recorded.elapsed_ns
        self.allocation_failures += recorded.allocation_failures
        failed = self._failed(plan, recorded)
        return Outcome(host, encode, compute, host + encode + compute, None, failed, recorded.reason)

    def _failed(self, plan: IterationPlan, recorded: PlanLine) -> list[RequestState]:
        if not recorded.failed:
            return []
        taking_part = {r.id: r for r, _ in (*plan.encode, *plan.attached, *plan.prefill)}
        taking_part |= {r.id: r for r in plan.decode or ()}
        if strangers := [id for id in recorded.failed if id not in taking_part]:
            self.num_given -= 1
            self._stop(f"failed: {strangers} in the live run, whom the iteration does not run")
        return [taking_part[id] for id in recorded.failed]

    def _stop(self, what: str) -> None:
        self.difference = Difference(f"iteration {self.num_given}", what, self.num_given)
        raise TwinStoppedError


class LoggedWorld(World):
    """The simulated world one iteration at a time, with its plans in `texts`."""

    stepwise = True
    texts: list[str]

    def _backend(self) -> AccountingBackend:
        self.texts = []
        return PlanLog(self._logged(), self.texts.append)

    def _logged(self) -> AccountingBackend:
        return super()._backend()


class TwinWorld(LoggedWorld):
    """The simulated world with the times of a live run."""

    def __init__(self, resolved: Resolved, recorded: Sequence[PlanLine]) -> None:
        self.recorded = RecordedBackend(recorded)
        super().__init__(resolved.scenario, resolved.profile)

    def _logged(self) -> AccountingBackend:
        return self.recorded


class Rerun(NamedTuple):
    """A run once more, with the lines of its plan log."""

    run: Run
    texts: list[str]
    ran_out: bool = False  # of recorded plans, before its end
    difference: Difference | None = None  # what stopped it


def rerun(resolved: Resolved) -> Rerun:
    """Simulate, one iteration at a time and with a plan log."""
    world = LoggedWorld(resolved.scenario, resolved.profile)
    return Rerun(serve(world, resolved.notes), world.texts)


def twin(resolved: Resolved, recorded: Sequence[PlanLine], members: Members | None = None) -> Rerun:
    """The scenario with recorded times, until its end or until there is nothing more to feed back.

    `members`, where given, is filled with who shared each iteration.
    """
    world = TwinWorld(resolved, recorded)
    world.recorder.members = members
    try:
        run = serve(world, resolved.notes)
    except TwinStoppedError:
        run = _cut_off(world, resolved.notes)
    return Rerun(run, world.texts, world.recorded.ran_out, world.recorded.difference)


def _cut_off(world: World, notes: list[str]) -> Run:
    """As an interrupt would leave it."""
    for request in list(world.recorder.under_way):
        world.recorder.leave_unfinished(request, "unfinished", "the twin stopped")
    return Run(world, verdict="interrupted", notes=notes, blockers={})


__all__ = ["LoggedWorld", "RecordedBackend", "Rerun", "TwinStoppedError", "TwinWorld", "rerun", "twin"]
