"""Traces with one request a line: Azure's CSV, Mooncake's JSONL, and our own JSONL, which we also write."""

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from workloads.errors import InputError
from workloads.frozen import NANOSECONDS
from workloads.images import MAX_PICTURES, ImageGroup, Picture, place
from workloads.models import VisionLanguageModel
from workloads.request import Request
from workloads.sizes import Sizes
from workloads.trace import Trace, cells, lines, parsed
from workloads.workload import span

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")
_REQUEST = TypeAdapter(Request)


class Azure(Trace):
    """Azure's LLM and LMM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens and perhaps NumImages.

    Time starts at the first row. The trace has no image sizes and no contents: `image_size` draws the former, and
    every image is unique.
    """

    kind: Literal["azure"] = "azure"
    image_size: Sizes | None = None
    context_tokens: Literal["text", "total"] = "text"  # do images come on top, or out of, ContextTokens?

    def rows(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        numbered = lines(self.path)
        columns = self._columns(next(numbered, None))
        sizes = self._sizes(seed)
        origin: int | None = None

        def read(line: str) -> Request:
            nonlocal origin
            values = cells(line)
            if len(values) != len(columns):
                raise ValueError(f"{len(values)} values for {len(columns)} columns")
            row = dict(zip(columns, values, strict=True))
            time = timestamp(row["TIMESTAMP"])
            origin = time if origin is None else origin
            count = whole(row.get("NumImages", "0"))
            if count > MAX_PICTURES:
                raise ValueError(f"{count} images; a request has at most {MAX_PICTURES}")
            images = list(itertools.islice(sizes, count))
            return self._request(
                time - origin, whole(row["ContextTokens"]), whole(row["GeneratedTokens"]), images, model
            )

        return parsed(self.path, read, numbered)

    def _columns(self, header: tuple[int, str] | None) -> list[str]:
        if header is None:
            return []
        number, line = header
        try:
            columns = column_names(line)
        except ValueError as error:
            raise InputError(f"{self.path}:{number}: {error}") from None
        if "NumImages" in columns and self.image_size is None:
            raise InputError(f"{self.path}: has images but no sizes; give workload.image_size")
        return columns

    def _sizes(self, seed: int) -> Iterator[Picture]:
        if self.image_size is None:
            return iter(())
        lists = ImageGroup(size=self.image_size).pictures(seed, "azure")
        return itertools.chain.from_iterable(lists)

    def _request(
        self, arrival: int, context: int, output: int, images: list[Picture], model: VisionLanguageModel
    ) -> Request:
        items = place(images, 0, model, "front")
        in_images = sum(map(span, items))
        prompt = context + in_images if self.context_tokens == "text" else max(context, in_images)
        return Request(0, arrival, prompt, output, items)


class Mooncake(Trace):
    """Mooncake's traces: timestamps in milliseconds, lengths, and hashes of the prompt's 512-token blocks."""

    kind: Literal["mooncake"] = "mooncake"

    def rows(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        return parsed(self.path, self._read, lines(self.path))

    @staticmethod
    def _read(line: str) -> Request:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        if missing := [name for name in ("timestamp", "input_length", "output_length") if name not in row]:
            raise ValueError(f"no field {missing[0]}")
        arrival = round(float(row["timestamp"]) * 1_000_000)  # from milliseconds
        hashes = row.get("hash_ids", [])
        if not isinstance(hashes, list):
            raise ValueError(f"hash_ids must be a list of whole numbers, got {hashes!r}")
        lengths = whole(row["input_length"]), whole(row["output_length"])
        return Request(0, arrival, *lengths, (), tuple(map(whole, hashes)))


class Jsonl(Trace):
    """Our own format, one Request a line: what `write_jsonl` wrote is read back as it was.

    Items keep the grid that they were written with, whatever the model.
    """

    kind: Literal["jsonl"] = "jsonl"

    def rows(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        return parsed(self.path, partial(_read_request, model), lines(self.path))


def _read_request(model: VisionLanguageModel, line: str) -> Request:
    request = _decode_request(line)
    if not model.supports_video and any(item.modality == "video" for item in request.items):
        raise ValueError(f"{model.name} takes no videos")
    return request


def _decode_request(line: str) -> Request:
    try:
        return _REQUEST.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


def column_names(line: str) -> list[str]:
    """The header's. ValueError if one that Azure's traces have is missing, or any stands twice."""
    columns = cells(line)
    if missing := [name for name in ("TIMESTAMP", "ContextTokens", "GeneratedTokens") if name not in columns]:
        raise ValueError(f"no column {missing[0]}")
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise ValueError(f"column {twice[0]} stands twice")
    return columns


def whole(value: str | int) -> int:
    """A whole number, not negative, from CSV text or JSON."""
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ValueError(f"not a whole number: {value!r}")
    return int(value)


def timestamp(text: str) -> int:
    """Nanoseconds since 1970 of `2023-11-16 18:17:03.9799600` or `2024-10-15T12:00:00.269Z`, both UTC."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a timestamp: {text!r}")
    day, clock, fraction = match.groups(default="")
    seconds = int(datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=UTC).timestamp())
    return seconds * NANOSECONDS + int(fraction.ljust(9, "0"))


def write_jsonl(path: Path, requests: Iterable[Request]) -> None:
    """All requests, one a line; the file appears whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.writelines(_REQUEST.dump_json(request) + b"\n" for request in requests)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
