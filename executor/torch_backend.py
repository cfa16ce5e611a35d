"""The live world: plans run on the device, and a clock says how long they took."""

from __future__ import annotations

from collections.abc import Sequence as Requests
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from executor.assembly import Batch, assemble
from executor.clocks import HostMeter, Timer
from executor.item_encoder import Encoded, ItemEncoder
from executor.messages import first_line
from executor.out_of_memory import is_out_of_memory
from executor.pictures import Pictures
from executor.prompts import Prompts, Sequence
from executor.runner import Runner
from executor.sampling import Sampler
from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.backend import Outcome
from sim.engine import OutOfMemoryError

if TYPE_CHECKING:
    from executor.graphs import Graphs


class Launched(NamedTuple):
    """An iteration under way."""

    batch: Batch | None
    tokens: Tensor | None
    logprobs: Tensor | None
    marks: tuple[Any, Any]  # before and after the encoder
    failed: Requests[RequestState]
    reason: str


class TorchBackend:
    """Keeps no books of memory: blocks and rows come with the plan. What it keeps is each request's tokens."""

    allocation_failures = 0
    peak_encoder_bytes = 0

    def __init__(
        self,
        runner: Runner,
        prompts: Prompts,
        pictures: Pictures,
        sampler: Sampler,
        timer: Timer,
        meter: HostMeter,
        graphs: Graphs | None = None,
    ) -> None:
        self.runner = runner
        self.prompts = prompts
        self.items = ItemEncoder(runner, pictures)
        self.sampler = sampler
        self.timer = timer
        self.meter = meter
        self.graphs = graphs
        self.sequences: dict[int, Sequence] = {}  # by request id

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Launched:
        assert max_iterations == 1, "a device runs one iteration at a time"
        self.meter.start()
        self._meet(plan)
        if plan.decode is not None:
            plan.decode.settle(ahead=1)
        batch = assemble(plan, self.sequences, self.runner.kv)
        self.meter.stop()
        try:
            return self._run(plan, batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.allocation_failures += 1
            raise OutOfMemoryError(f"{self.runner.loaded.device}: {first_line(error)}") from None

    def _meet(self, plan: IterationPlan) -> None:
        """Make the prompts of requests that run for the first time."""
        for request in (*(request for request, _ in plan.encode), *(request for request, _ in plan.prefill)):
            if request.id not in self.sequences:
                self.meter.stop()  # tokenising is the front end's work
                self.sequences[request.id] = self.prompts.sequence(request.request)
                self.meter.start()

    def _run(self, plan: IterationPlan, batch: Batch | None) -> Launched:
        failed, reason, marks = self._encode(plan)
        if failed:
            batch = assemble(plan, self.sequences, self.runner.kv, skip=failed)
        if batch is None:
            return Launched(None, None, None, marks, failed, reason)
        logits = self.graphs.run(batch) if self.graphs is not None else None
        if logits is None:
            logits = self.runner.forward(batch)
        tokens, logprobs = self.sampler(logits)
        return Launched(batch, tokens, logprobs, marks, failed, reason)

    def _encode(self, plan: IterationPlan) -> Encoded:
        return self.items.encode(plan, self.timer)

    def wait(self, handle: Launched) -> Outcome:
        end = self.timer.mark()
        self.meter.start()  # tokens come to the host and take their places
        if handle.batch is not None and handle.tokens is not None:
            self._append(handle.batch, handle.tokens, handle.logprobs)
        self.meter.stop()
        start, encoded = handle.marks
        host = self.meter.take()
        encode, compute = self.timer.between(start, encoded), self.timer.between(encoded, end)
        return Outcome(host, encode, compute, host + encode + compute, None, handle.failed, handle.reason)

    def _append(self, batch: Batch, tokens: Tensor, logprobs: Tensor | None) -> None:
        for request, token in zip(batch.owners, tokens.tolist(), strict=True):
            self.sequences[request.id].append(token)
        if logprobs is not None:
            for request, logprob in zip(batch.owners, logprobs.tolist(), strict=True):
                self.sequences[request.id].logprobs.append(logprob)
