"""Alibaba's ServeGen clients as a load: production arrivals, and every field drawn from what was measured."""

import bisect
import heapq
import itertools
import re
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from workloads.arrivals import nanoseconds
from workloads.errors import InputError
from workloads.images import Picture, place
from workloads.models import VisionLanguageModel
from workloads.request import MultimodalItem, Request
from workloads.servegen_files import FIELDS, WINDOW, Dataset, read_datasets, read_windows
from workloads.streams import stream
from workloads.trace import Trace
from workloads.workload import largest, span

_TRACE = re.compile(r"chunk-(0|[1-9][0-9]*)-trace\.csv")


class ServeGen(Trace):
    """A folder of `chunk-<client>-trace.csv` and `chunk-<client>-dataset.json`, multimodal.

    An image is given by its embeds: each becomes the squarest one that comes nearest to them with the model.
    """

    kind: Literal["servegen"] = "servegen"
    clients: Literal["all"] | Annotated[tuple[int, ...], Field(min_length=1)] = "all"

    def rows(self, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        sources = [self._client(client, seed, model) for client in self._ids()]
        return heapq.merge(*sources, key=attrgetter("arrival"))

    def largest_item(self, *, seed: int, model: VisionLanguageModel) -> MultimodalItem | None:
        """By the measured distributions of the clients chosen, whatever the window and the seed."""
        embeds: set[int] = set()
        for client in self._ids():
            for dataset in read_datasets(self._file(client, "dataset.json")):
                if dataset.fields["image_count"].largest():
                    embeds.update(dataset.fields["image_tokens"].numbers())
        return largest(model.item(None, "image", *model.size_for_embeds(number)) for number in sorted(embeds - {0}))

    def _ids(self) -> list[int]:
        names = (_TRACE.fullmatch(path.name) for path in self.path.glob("chunk-*-trace.csv"))
        there = sorted(int(name[1]) for name in names if name)
        if not there:
            raise InputError(f"{self.path}: no folder with chunk-<client>-trace.csv files")
        if self.clients == "all":
            return there
        if absent := sorted(set(self.clients) - set(there)):
            raise InputError(f"{self.path}: no client {absent[0]}; there are {there[0]} to {there[-1]}")
        return sorted(set(self.clients))

    def _file(self, client: int, ending: str) -> Path:
        return self.path / f"chunk-{client}-{ending}"

    def _client(self, client: int, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        datasets = read_datasets(self._file(client, "dataset.json"))
        starts = [dataset.start for dataset in datasets]
        first: float | None = None
        for window in read_windows(self._file(client, "trace.csv")):
            past = self.end is not None and window.start >= self.end
            if past or window.start + WINDOW <= self.start or not window.rate:
                continue
            rng = partial(stream, seed, "servegen", client, round(window.start))
            first = float(window.unit_gaps(rng("first"), 1)[0]) if first is None else first
            times, first = window.times(first, rng("arrivals"))
            dataset = datasets[max(bisect.bisect_right(starts, window.start) - 1, 0)]
            prefix = f"image/{seed}/servegen/{client}/{window.start:g}"
            yield from _requests(nanoseconds(times).tolist(), dataset, rng, prefix, model)


def _requests(
    times: list[int],
    dataset: Dataset,
    rng: "partial[np.random.Generator]",
    prefix: str,
    model: VisionLanguageModel,
) -> Iterator[Request]:
    """One window's requests, each field drawn on its own; an image of 0 tokens is none."""
    draw = {field: dataset.fields[field].draw for field in FIELDS}
    texts, counts, outputs = (
        draw[field](rng(field), len(times)).tolist() for field in ("text_tokens", "image_count", "output_tokens")
    )
    embeds = iter(draw["image_tokens"](rng("image_tokens"), sum(counts)).tolist())
    for index, (time, text, count, output) in enumerate(zip(times, texts, counts, outputs, strict=True)):
        images = [number for number in itertools.islice(embeds, count) if number]
        pictures = [
            Picture(f"{prefix}/{index}/{image}", "image", *model.size_for_embeds(number), 1)
            for image, number in enumerate(images)
        ]
        items = place(pictures, text, model, "front")
        yield Request(0, time, max(text + sum(map(span, items)), 1), max(output, 1), items)
