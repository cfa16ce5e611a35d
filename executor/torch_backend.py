"""The live world: plans run on the device, and a clock says how long they took."""

from __future__ import annotations

from collections.abc import Sequence as Requests
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from executor.assembly import Batch, assemble
from executor.clocks import HostMeter, Timer
from executor.pictures import Pictures
from executor.prompts import Prompts, Sequence
from executor.runner import Runner
from executor.sampling import Sampler
from policies.encoder_cache import Key
from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.backend import Outcome
from sim.engine import OutOfMemoryError
from sim.simulated import SimulatedBackend

if TYPE_CHECKING:
    from executor.graphs import Graphs

Patches = dict[tuple[RequestState, int], Tensor]  # pixels of (request, item)


class Encoded(NamedTuple):
    """What came of an iteration's items."""

    failed: Requests[RequestState]
    reason: str
    marks: tuple[Any, Any]  # before and after


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
        self.pictures = pictures
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
        except torch.OutOfMemoryError as error:
            self.allocation_failures += 1
            raise OutOfMemoryError(f"{self.runner.loaded.device}: {str(error).splitlines()[0]}") from None

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
        """All items in one call; if that fails, one by one, so that an error fails its owners alone."""
        patches, errors = self._patches(plan)
        start = self.timer.mark()
        try:
            self._encode_together(list(patches), patches)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            errors |= self._encode_each(patches)
        return Encoded(*_blame(plan, errors), (start, self.timer.mark()))

    def _patches(self, plan: IterationPlan) -> tuple[Patches, dict[Key, str]]:
        """Pixels as the front end hands them over, with whatever was wrong with some of them."""
        patches: Patches = {}
        errors: dict[Key, str] = {}
        for request, index in plan.encode:
            try:
                patches[request, index] = self.pictures.patches(request.items[index], request.content_key(index))
            except (OSError, ValueError, SyntaxError) as error:  # what a broken picture file makes its reader raise
                errors[request.keys[index]] = f"item {index} cannot be read: {_one_line(error)}"
        return patches, errors

    def _encode_together(self, owners: list[tuple[RequestState, int]], patches: Patches) -> None:
        if not owners:
            return
        self.runner.encode(
            [patches[owner] for owner in owners],
            [request.items[index] for request, index in owners],
            [request.holds[index] for request, index in owners],
        )

    def _encode_each(self, patches: Patches) -> dict[Key, str]:
        errors = {}
        for request, index in patches:
            try:
                self._encode_together([(request, index)], patches)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                errors[request.keys[index]] = f"item {index} cannot be encoded: {_one_line(error)}"
        return errors

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


class PricedBackend(TorchBackend):
    """Runs every plan, and lets the cost model tell the time and the ledger what fits: a deterministic live run."""

    def __init__(self, priced: SimulatedBackend, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.priced = priced

    @property
    def allocation_failures(self) -> int:  # type: ignore[override]  # a figure of the ledger here
        return self.priced.allocation_failures

    @property
    def peak_encoder_bytes(self) -> int:  # type: ignore[override]
        return self.priced.peak_encoder_bytes

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Launched:
        self._price = self.priced.launch(plan, max_iterations, horizon)
        return super().launch(plan, max_iterations, horizon)

    def _encode(self, plan: IterationPlan) -> Encoded:
        if not self._price.failed:
            return super()._encode(plan)
        mark = self.timer.mark()
        return Encoded(self._price.failed, self._price.reason, (mark, mark))

    def wait(self, handle: Launched) -> Outcome:
        super().wait(handle)
        return self._price._replace(failed=handle.failed, reason=handle.reason)


def _blame(plan: IterationPlan, errors: dict[Key, str]) -> tuple[list[RequestState], str]:
    """Everybody who waits for an output that there will not be, and the first reason."""
    owners = [request for request, index in (*plan.encode, *plan.attached) if request.keys[index] in errors]
    return list(dict.fromkeys(owners)), next(iter(errors.values()), "")


def _one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
