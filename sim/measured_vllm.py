"""Reads what `vllm bench serve --save-result --save-detailed` writes: one JSON document with a list a quantity."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, model_validator

from sim.client_view import ClientView, Seen, client_view
from sim.measured_files import checked, documents, nanoseconds
from sim.scenario_file import default_name

_HINT = "; wanted is a file of `vllm bench serve --save-result --save-detailed`"


class Result(BaseModel):
    """The document, as far as it is needed; times in seconds."""

    request_rate: float | str = ""
    input_lens: list[NonNegativeInt]
    output_lens: list[NonNegativeInt]
    ttfts: list[NonNegativeFloat]
    itls: list[list[NonNegativeFloat]]
    start_times: list[float]
    errors: list[str]
    latencies: list[NonNegativeFloat] | None = None  # older versions leave them to be added up

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        sizes = {name: len(getattr(self, name)) for name in LISTS if getattr(self, name) is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"lists of different lengths: {sizes}")
        return self


LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors", "latencies")


def read_vllm(path: Path) -> list[ClientView]:
    """A run, or one a line where results were appended. Raises InputError, one line."""
    results = [checked(Result, place, value, _HINT) for place, value in documents(path)]
    labels = [f"{number}" if len(results) > 1 else "" for number in range(1, len(results) + 1)]
    name = default_name(path)
    return [
        client_view("vllm bench serve", name, _seen(one), label) for one, label in zip(results, labels, strict=True)
    ]


def _seen(result: Result) -> list[Seen]:
    return [_request(result, place) for place in range(len(result.errors))]


def _request(result: Result, place: int) -> Seen:
    start, prompt = nanoseconds(result.start_times[place]), result.input_lens[place]
    if result.errors[place]:
        return Seen(start, prompt, None, None, None, status="failed", reason=result.errors[place])
    gaps = [nanoseconds(gap) for gap in result.itls[place]]
    ttft = nanoseconds(result.ttfts[place])
    e2el = ttft + sum(gaps) if result.latencies is None else nanoseconds(result.latencies[place])
    return Seen(start, prompt, result.output_lens[place], ttft, e2el, gaps)
