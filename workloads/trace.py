"""What all traces have in common: the file, the window replayed and its speed; one clear line for a bad one."""

import csv
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from workloads.arrivals import Concurrency
from workloads.errors import InputError
from workloads.frozen import LATEST, NANOSECONDS, Frozen, NumRequests
from workloads.models import VisionLanguageModel
from workloads.request import MOST_PRIORITY, MultimodalItem, Request
from workloads.workload import largest

TRACE_END = LATEST // NANOSECONDS  # seconds
_ESCAPED = re.compile("[\udc80-\udcff]")  # what bytes that are not UTF-8 are read as
MOST_HASH = 2**64
MOST_TOKENS = 2**50  # of a prompt, an answer or an item: sums of a thousand fit an int64


def _relative_to_scenario(path: Path, info: ValidationInfo) -> Path:
    """A relative path starts at `base` of the validation context: the folder of the scenario."""
    if "\0" in str(path):
        raise ValueError("a path has no NUL character")
    base = (info.context or {}).get("base")
    return path if base is None else Path(base) / path


class Trace(Frozen):
    """A recorded load: replayed from `start` to `end` seconds of its own time, `speedup` times as fast."""

    path: Annotated[Path, AfterValidator(_relative_to_scenario)]
    speedup: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    start: Annotated[float, Field(ge=0, le=TRACE_END, allow_inf_nan=False)] = 0.0
    end: Annotated[float, Field(gt=0, le=TRACE_END, allow_inf_nan=False)] | None = None
    limit: NumRequests | None = None  # at most so many requests

    @model_validator(mode="after")
    def _window(self) -> "Trace":
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end {self.end:g} must be after start {self.start:g}")
        return self

    @property
    def closed_loop(self) -> Concurrency | None:
        return None

    @property
    def num_requests(self) -> int | None:
        return None

    def rows(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        """The recorded requests in time order, arrivals in the trace's own time; ids do not matter."""
        raise NotImplementedError

    def largest_item(self, *, seed: int, model: VisionLanguageModel) -> MultimodalItem | None:
        """By reading the trace once."""
        return largest(item for request in self.requests(seed=seed, model=model) for item in request.items)

    def requests(self, *, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        """The requests in the window. InputError at once if there are none, later at a corrupt line."""
        requests = self._replayed(seed, model)
        first = next(requests, None)
        if first is None:
            window = "" if not self.start and self.end is None else " in the window from start to end"
            raise InputError(f"{self.path}: no requests{window}")
        return itertools.chain([first], requests)

    def _replayed(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        start, end = round(self.start * NANOSECONDS), math.inf if self.end is None else self.end * NANOSECONDS
        inside = (row for row in self._until(end, seed, model) if row.arrival >= start)
        for id, r in enumerate(itertools.islice(inside, self.limit)):
            arrival = r.arrival - start
            if self.speedup != 1:  # a float cannot hold every nanosecond, so times at normal speed are left alone
                arrival = self._stretched(arrival)
            yield Request(id, arrival, r.prompt_tokens, r.output_tokens, *r[4:])

    def _stretched(self, arrival: int) -> int:
        stretched = round(arrival / self.speedup)
        if stretched > LATEST:
            raise InputError(f"{self.path}: arrivals run past 146 years with speedup {self.speedup:g}")
        return stretched

    def _until(self, end: float, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        return itertools.takewhile(lambda row: row.arrival < end, self.rows(seed, model))


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The file's lines that are not empty, with their numbers from 1."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=None) as file:
            for number, line in enumerate(file, start=1):
                if not line.isascii() and _ESCAPED.search(line):
                    raise InputError(f"{path}:{number}: not a text file in UTF-8")
                if line.strip():
                    yield number, line.strip()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def cells(line: str) -> list[str]:
    """A line's values in CSV. ValueError if there is no reading it."""
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise ValueError(error) from None


def parsed(path: Path, read: Callable[[str], Request], numbered: Iterator[tuple[int, str]]) -> Iterator[Request]:
    """Each line read as a request; what is wrong with one is said with its number."""
    latest = -math.inf
    for number, line in numbered:
        try:
            request = read(line)
            if request.arrival < latest:
                raise ValueError("arrives before the line above; sort the trace by time")
            check(request)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(f"{path}:{number}: {error}") from error
        latest = request.arrival
        yield request


def check(request: Request) -> None:
    """ValueError on what no client can ask for."""
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise ValueError(
            f"prompt and output need at least one token, got {request.prompt_tokens} and {request.output_tokens}"
        )
    if request.arrival < 0:
        raise ValueError(f"arrival {request.arrival} is negative")
    if request.arrival > LATEST:
        raise ValueError("arrives more than 146 years after the trace's start")
    if max(request.prompt_tokens, request.output_tokens) > MOST_TOKENS:
        raise ValueError(f"prompt and output have at most {MOST_TOKENS} tokens")
    if abs(request.priority) > MOST_PRIORITY:
        raise ValueError(f"priority {request.priority}: none is beyond {MOST_PRIORITY} either way")
    if request.hash_block_size < 1 or any(not 0 <= value < MOST_HASH for value in request.block_hashes):
        raise ValueError("a block hash is 0 to 2**64 - 1, and stands for at least one token")
    end = 0
    for item in request.items:
        if min(item.grid) < 1 or not 0 <= item.pixels <= 2**60 or item.encoder_tokens > MOST_TOKENS:
            raise ValueError(f"item at {item.offset}: no picture has such a grid, or so many pixels")
        if not 0 < item.embeds <= item.length or math.prod(item.grid) != item.encoder_tokens:
            raise ValueError(f"item at {item.offset}: grid, encoder_tokens, length and embeds do not go together")
        if item.offset < end or item.offset + item.length > request.prompt_tokens:
            raise ValueError(f"item at {item.offset}: overlaps the one before or runs past the prompt")
        end = item.offset + item.length
