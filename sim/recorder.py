"""Follows a run: one row for every iteration and every request, and the tokens' times in between."""

from collections.abc import Callable
from operator import attrgetter

from policies.completed import Completed
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import ServingState
from policies.setbacks import Setbacks
from sim.backend import Outcome
from sim.decisions import Decisions
from sim.iteration_log import IterationLog
from sim.members import Members, sharing
from sim.request_log import RequestLog
from sim.served import ServedRequest, served

DONE = attrgetter("done")  # the event that a client waits for, if one does


class Recorder:
    """Called by the engine around each iteration, in this order: planned, iterated, completed."""

    def __init__(
        self,
        *,
        keep_iterations: bool = True,
        clients_wait: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """`clients_wait`: whether anybody may act on an answer when it is there; in an open loop nobody does."""
        self.iterations = IterationLog(keep_iterations)
        self.requests = RequestLog()
        self.decisions = Decisions()
        self.under_way: dict[ServedRequest, None] = {}
        self.clients_wait = clients_wait
        self.members: Members | None = None  # who shared each iteration, for whoever sets a dictionary to know it
        self._progress = progress

    def arrive(self, request: ServedRequest) -> None:
        self.under_way[request] = None

    def planned(self, plan: IterationPlan, now: int) -> None:
        """Before `begin`, where more than decodes is planned: who becomes active, and whose answer is interrupted."""
        self.decisions.add(plan, self.iterations.num_iterations)
        if self.members is not None and (plan.encode or plan.prefill):
            self.members[self.iterations.num_iterations] = sharing(plan)
        if plan.admitted:
            for request in served(plan.admitted):
                if request.admitted < 0:  # who is sent back to the queue has been active before
                    request.admitted = now
        if plan.setbacks:
            self._set_back(plan.setbacks)

    def _set_back(self, setbacks: Setbacks) -> None:
        for request in served(setbacks.refused):
            request.reason = setbacks.refused[request]
        for request in served([*setbacks.preempted, *setbacks.held_back]):
            if request.joined >= 0:
                self.requests.close_segment(request, self.iterations.decode_steps)

    def iterated(self, plan: IterationPlan, outcome: Outcome, state: ServingState, start: int) -> None:
        """Before `complete`: the rows as they stood while the iteration ran."""
        self.iterations.add(plan, outcome, state, start)
        if plan.encode:
            self._label_encode(plan, outcome.encode)
        for owner, _ in plan.prefill:
            request: ServedRequest = owner  # type: ignore[assignment]  # see `served`
            if request.first_token < 0:
                request.prefill += outcome.compute
        if plan.blocked:
            self._label_blocked(plan, outcome.total, outcome.encode)

    def waited(self, plan: IterationPlan, elapsed: int) -> None:
        """The engine had nothing to run: only those whom an encoder budget blocks can say what they waited for."""
        self._label_blocked(plan, elapsed, 0)

    def _label_encode(self, plan: IterationPlan, elapsed: int) -> None:
        """An own item is being encoded, whoever pays for it."""
        for request in served(self._encoding(plan)):
            if request.first_token < 0:
                request.encode += elapsed

    def _encoding(self, plan: IterationPlan) -> dict[RequestState, None]:
        keys = {request.keys[index] for request, index in plan.encode}
        return {r: None for r, index in (*plan.encode, *plan.attached) if r.keys[index] in keys}

    def _label_blocked(self, plan: IterationPlan, total: int, encode: int) -> None:
        """The rest of the iteration, after what was labelled already; not yet admitted requests stay in the queue."""
        encoding = self._encoding(plan) if encode else {}
        running = {request for request, _ in plan.prefill}  # refused an item for later, they run all the same
        for request in served(plan.blocked):
            if request.first_token < 0 <= request.admitted and request not in running:
                self._add_wait(plan, request, total - encode if request in encoding else total)

    def _add_wait(self, plan: IterationPlan, request: ServedRequest, elapsed: int) -> None:
        if plan.blocked[request].why == "reservation":
            request.reservation_wait += elapsed
        else:
            request.budget_wait += elapsed

    def is_awaited(self, completed: Completed) -> bool:
        """Whether a client waits for one of those who leave."""
        return any(map(DONE, completed.finished)) or any(map(DONE, completed.failed))

    def completed(self, completed: Completed, outcome: Outcome, now: int) -> None:
        """After `complete`: tokens, and who is done."""
        emitted, finished, failed = completed
        steps = self.iterations.decode_steps
        for owner in emitted:
            request: ServedRequest = owner  # type: ignore[assignment]  # see `served`
            if request.first_token < 0:
                request.first_token = now
            request.given, request.given_step, request.given_tokens = now, steps, request.num_computed_tokens
        for owner in finished:
            self.leave(owner, now, "finished")  # type: ignore[arg-type]  # see `served`
        if failed:
            for request in served(failed):
                self.leave(request, now, "failed", request.reason or outcome.reason)

    def leave(self, request: ServedRequest, now: int, status: str, reason: str = "") -> None:
        """The request's row is written; its client hears of it."""
        request.finish, request.status, request.reason = now, status, reason
        self.requests.add(request, self.iterations.decode_steps)
        self.under_way.pop(request, None)
        if request.done is not None:
            request.done.succeed()
        if self._progress is not None:
            self._progress(len(self.requests))

    def leave_unfinished(self, request: ServedRequest, status: str, reason: str) -> None:
        """The run is over and the request is not."""
        request.status, request.reason = status, reason
        self.requests.add(request, self.iterations.decode_steps)
        self.under_way.pop(request)
