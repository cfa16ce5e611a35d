"""The one serving loop: a policy drafts, a backend runs or prices, the clock moves, the state follows."""

from collections.abc import Generator

import simpy

from policies.builder import PlanBuilder
from policies.completed import NOTHING
from policies.plan import IterationPlan
from policies.policy import FOREVER, Policy
from policies.prefix_builder import builder_type
from policies.serving import ServingState
from sim.backend import Backend, Outcome
from sim.clock import Later, now
from sim.recorder import Recorder
from sim.served import ServedRequest

AT_ONCE = Outcome(0, 0, 0, 0)


class OutOfMemoryError(Exception):
    """The run ends here, because the scenario says that it should."""


class Engine:
    """Serves what is delivered to it, forever; the environment decides when that ends.

    What arrives or is cancelled while an iteration is under way takes effect at the next draft.
    """

    def __init__(
        self,
        env: simpy.Environment,
        state: ServingState,
        policy: Policy,
        backend: Backend,
        recorder: Recorder,
        *,
        fast_path: bool = True,
        end_when_out_of_memory: bool = False,
    ) -> None:
        self.env = env
        self.state = state
        self.policy = policy
        self.backend = backend
        self.recorder = recorder
        self.fast_path = fast_path
        self.end_when_out_of_memory = end_when_out_of_memory
        self._builder_type = builder_type(state)
        self._schedule = policy.schedule
        self._why_never = policy.why_never
        self._told = False  # of something that takes effect at the next draft
        self._owed = 0  # ns of the loop's own work on what it took in, not paid yet
        self._arrived: list[ServedRequest] = []
        self._cancelled: list[tuple[ServedRequest, str]] = []
        self._all_decode = IterationPlan(state.decodes)  # what there is to plan while nobody else is active
        self._builder: PlanBuilder | None = None  # of the last draft that the policy was asked for
        self._idle: simpy.Event | None = None  # what wakes the loop while it has nothing to run
        env.process(self._serve())

    def deliver(self, request: ServedRequest) -> None:
        """A prepared request reaches the queue; one that can never be served is rejected here, alone."""
        request.prepared = time = now(self.env)
        reason = self._why_never(self.state.limits, request)
        if reason:
            self.recorder.leave(request, time, "rejected", reason)
            return
        self._arrived.append(request)
        self._wake()

    def cancel(self, request: ServedRequest, reason: str) -> None:
        """The client no longer wants the answer. Does nothing where it already has it."""
        if request.status:
            return
        if request.prepared < 0:
            self.recorder.leave(request, now(self.env), "cancelled", reason)
            return
        self._cancelled.append((request, reason))
        self._wake()

    def draft(self, start: int) -> IterationPlan:
        """The plan of the iteration that would begin now, as the policy has it; changes nothing."""
        self._builder = builder = self._builder_type(self.state, start)
        self._schedule(builder)
        return builder.plan

    def _wake(self) -> None:
        self._told = True
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def _rest(self, plan: IterationPlan, start: int) -> Generator[simpy.Event, None, int]:
        """There is nothing to run until something happens; returns when that is."""
        self._idle = self.env.event()
        yield self._idle
        self.recorder.waited(plan, now(self.env) - start)
        return now(self.env)

    def _serve(self) -> Generator[simpy.Event, None, None]:
        env, state, recorder, all_decode = self.env, self.state, self.recorder, self._all_decode
        peek, add_decodes, start = env.peek, recorder.iterations.add_decodes, now(env)
        while True:
            upcoming = peek()
            if upcoming <= start:  # whatever is stamped with this moment comes before its draft
                yield Later(env, start - now(env))
                continue
            if self._told:
                self._take_in(start)
                continue  # a client that was told may send again at this very moment
            if state.only_decodes():  # there is no choice to make, and the policy is not asked
                plan, outcome = all_decode, self._decode(start, upcoming)
            else:
                plan = self.draft(start)
                if plan.is_empty():
                    start = yield from self._without_running(plan, start)
                    continue
                outcome = self._launch(plan, start, upcoming)
            end, run, failed = start + outcome.total, outcome.run, outcome.failed
            if upcoming <= end or not self.fast_path:
                yield Later(env, end - now(env))
            if plan is all_decode:
                add_decodes(plan, outcome, state, start)
            else:
                recorder.iterated(plan, outcome, state, start)
            start = end
            completed = state.complete(plan, 1 if run is None else run.num_iterations, failed)
            if completed is not NOTHING:
                if recorder.clients_wait and start > now(env) and recorder.is_awaited(completed):
                    yield Later(env, start - now(env))  # clients act at the time at which they hear of it
                recorder.completed(completed, outcome, start)
            if failed and self.end_when_out_of_memory:
                raise OutOfMemoryError(outcome.reason)

    def _without_running(self, plan: IterationPlan, start: int) -> Generator[simpy.Event, None, int]:
        """A plan with nothing to run; returns when the next draft is due."""
        if plan.changes_alone:
            yield from self._change(plan, start)
            return start
        return (yield from self._rest(plan, start))

    def _change(self, plan: IterationPlan, start: int) -> Generator[simpy.Event, None, None]:
        """Carry out a plan that runs nothing: it takes no time."""
        self.recorder.planned(plan, start)
        self.state.begin(plan)
        completed = self.state.complete(plan)
        if completed is not NOTHING:
            if start > now(self.env):
                yield Later(self.env, start - now(self.env))
            self.recorder.completed(completed, AT_ONCE, start)

    def _decode(self, start: int, upcoming: float) -> Outcome:
        """Nothing but an event or the end of an answer changes what runs."""
        state, plan, repeats, horizon = self.state, self._all_decode, 1, 0
        if self.fast_path and not self._owed:
            until: int = FOREVER if upcoming > FOREVER else upcoming  # type: ignore[assignment]  # times are whole
            repeats, horizon = state.decodes.steps_alike(), until - start
        state.begin_decodes(plan)
        outcome = self.backend.wait(self.backend.launch(plan, repeats, horizon))
        return self._with_owed(outcome) if self._owed else outcome

    def _launch(self, plan: IterationPlan, start: int, upcoming: float) -> Outcome:
        state, repeats, horizon = self.state, 1, 0
        if not plan.prefill and plan.decodes_only:
            if self.fast_path and not self._owed:
                repeats, horizon = state.steps_alike(), self._unchanged_until(upcoming) - start
            state.begin_decodes(plan)
        else:
            self.recorder.planned(plan, start)
            state.begin(plan)
        outcome = self.backend.wait(self.backend.launch(plan, repeats, horizon))
        return self._with_owed(outcome) if self._owed else outcome

    def _with_owed(self, outcome: Outcome) -> Outcome:
        """The loop worked on what it had taken in before it came to this iteration."""
        owed, self._owed = self._owed, 0
        return outcome._replace(host=outcome.host + owed, total=outcome.total + owed)

    def _unchanged_until(self, upcoming: float) -> int:
        """When something may happen that changes the last draft, if it is nothing but decodes."""
        assert self._builder is not None
        return int(min(upcoming, self.policy.stable_until(self._builder)))

    def _take_in(self, start: int) -> None:
        """Arrivals in the order in which they came, at one time in the order of their ids; then cancellations."""
        self._told = False
        if len(self._arrived) > 1:
            self._arrived.sort(key=lambda r: (r.prepared, r.id))
        for request in self._arrived:
            self.state.submit(request)
            self._owed += request.exposed
        self._arrived.clear()
        for request, reason in self._cancelled:
            if not request.status:
                self.state.abort(request)
                self.recorder.leave(request, start, "cancelled", reason)
        self._cancelled.clear()
