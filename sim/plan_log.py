"""The plan log of a live run: one JSON line an iteration, what ran and how long it took, to be fed back later."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.backend import AccountingBackend, Around, Outcome
from sim.files import whole
from sim.plan_line import PlanLine
from sim.profiles import first_problem
from workloads.errors import InputError

__all__ = ["PlanLine", "PlanLines", "PlanLog", "parsed", "read_plans", "read_texts", "write_plans"]


class PlanLines:
    """Plans as lines without an outcome, in the order of their iterations."""

    def __init__(self) -> None:
        self._iteration = 0
        self._cohort: list[int] = []  # as it was last written

    def line(self, plan: IterationPlan) -> PlanLine:
        """To be called between `begin` and `complete`, while the plan is as it runs."""
        number, self._iteration = self._iteration, self._iteration + 1
        return PlanLine.model_construct(
            iteration=number,
            admitted=[request.id for request in plan.admitted],
            preempted=[request.id for request in plan.preempted],
            held_back=[request.id for request in plan.held_back],
            requeued=[request.id for request in plan.requeued],
            refused=[request.id for request in plan.refused],
            hits=[(request.id, request.num_computed_tokens) for request in plan.hits],
            attached=_items(plan.attached),
            charged=_items(plan.charged),
            reclaimed=_items(plan.reclaimed),
            encode=[(request.id, index, request.items[index].grid) for request, index in plan.encode],
            encodes_per_request=plan.encodes_per_request and bool(plan.encode),
            prefill=[(request.id, tokens, request.num_computed_tokens) for request, tokens in plan.prefill],
            kept_blocks=_items(plan.kept_blocks),
            decode=self._changed(plan),
            num_decodes=plan.num_decodes,
            context_tokens=plan.context_tokens,
        )

    def _changed(self, plan: IterationPlan) -> list[int] | None:
        if plan.decode is None:
            return None
        cohort = [request.id for request in plan.decode]
        if cohort == self._cohort:
            return None
        self._cohort = cohort
        return cohort


def _items(items: Sequence[tuple[RequestState, int]]) -> list[tuple[int, int]]:
    return [(request.id, index) for request, index in items]


class PlanLog(Around[AccountingBackend]):
    """A backend as it is, with a line handed to `write` after each of its iterations."""

    def __init__(self, backend: AccountingBackend, write: Callable[[str], None]) -> None:
        super().__init__(backend)
        self._write = write
        self._lines = PlanLines()
        self._failures = 0

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> tuple[PlanLine, Any]:
        assert max_iterations == 1, "plans are logged one iteration at a time"
        line = self._lines.line(plan)
        self._failures = self.backend.allocation_failures
        return line, self.backend.launch(plan, max_iterations, horizon)

    def wait(self, handle: tuple[PlanLine, Any]) -> Outcome:
        line, inner = handle
        outcome = self.backend.wait(inner)
        elapsed = (outcome.host, outcome.encode, outcome.compute)
        assert outcome.total == sum(elapsed), "an iteration takes the sum of its parts"
        told = {
            "elapsed_ns": elapsed,
            "failed": [request.id for request in outcome.failed],
            "reason": outcome.reason,
            "allocation_failures": self.backend.allocation_failures - self._failures,
        }
        self._write(line.model_copy(update=told).text())
        return outcome


def write_plans(lines: Iterable[str], path: Path) -> None:
    """Compressed, whole or not at all, with no date or name inside: equal plans are equal files."""
    with whole(path) as partial, partial.open("wb") as raw, _gzip(raw) as file:
        for line in lines:
            file.write(f"{line}\n".encode())


def _gzip(raw: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0)


def read_texts(path: Path) -> list[str]:
    """The lines as they were written. Raises InputError, one line, where the file is not whole or not text."""
    try:
        content = path.read_bytes()
        if not content:  # which gzip takes for nothing, compressed
            raise EOFError("it is empty")
        return gzip.decompress(content).decode().splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: is not a whole gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def parsed(texts: Iterable[str], path: Path) -> list[PlanLine]:
    """The lines of `path`. Raises InputError with the first that is no plan line."""
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            lines.append(PlanLine.model_validate_json(text))
        except ValidationError as error:
            raise InputError(f"{path}: line {number}: {first_problem(error)}") from None
        if lines[-1].iteration != number - 1:
            raise InputError(f"{path}: line {number}: iteration {lines[-1].iteration} is out of order")
    return lines


def read_plans(path: Path) -> list[PlanLine]:
    """Every iteration of a plan log. Raises InputError, one line, for a file that is none."""
    return parsed(read_texts(path), path)
