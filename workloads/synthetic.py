"""Requests drawn from distributions: arrivals, lengths and images."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from workloads.arrivals import Arrivals, Concurrency
from workloads.distributions import Lengths
from workloads.frozen import CHUNK, Frozen, NumRequests
from workloads.images import ImageGroup, place
from workloads.models import VisionLanguageModel
from workloads.request import MOST_PRIORITY, MultimodalItem, Request
from workloads.shared_prefix import SharedPrefix
from workloads.streams import stream
from workloads.workload import largest, span


def _as_list(value: Any) -> Any:
    """No images, one group or several."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


class Description(Frozen):
    """What one kind of client sends. A request's prompt is its text, and every image's rows and two delimiters."""

    num_requests: NumRequests
    arrivals: Arrivals
    text_tokens: Lengths
    output_tokens: Lengths
    images: Annotated[tuple[ImageGroup, ...], Field(max_length=100), BeforeValidator(_as_list)] = ()
    priority: Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = 0  # of every request; lower comes first
    placement: Literal["front", "spread"] = "front"  # images before the text, or evenly spread in it
    shared_prefix: SharedPrefix | None = None  # text before all of that, which requests have in common

    @model_validator(mode="after")
    def _never_empty(self) -> "Description":
        if self.output_tokens.smallest() < 1:
            raise ValueError("output_tokens can come out as 0; an answer has at least one token")
        if self.text_tokens.smallest() < 1 and all(group.count.smallest() < 1 for group in self.images):
            raise ValueError("text_tokens can come out as 0 with no image; a prompt has at least one token")
        return self

    @property
    def closed_loop(self) -> Concurrency | None:
        return self.arrivals if isinstance(self.arrivals, Concurrency) else None

    def largest_item(self, *, seed: int, model: VisionLanguageModel) -> MultimodalItem | None:
        """By the bounds of the distributions, whatever the seed draws."""
        return largest(item for group in self.images if (item := group.largest_item(model)))

    def requests(self, *, seed: int, model: VisionLanguageModel, name: str = "") -> Iterator[Request]:
        """The first `num_requests` of an endless sequence; `name` sets one client apart from another."""
        if self.images:
            requests = self._with_images(seed, model, name)
        else:
            requests = itertools.starmap(Request, self._fields(seed, name))
        if self.shared_prefix is not None:
            requests = self.shared_prefix.before(requests, seed, name)
        if self.priority:
            requests = (request._replace(priority=self.priority) for request in requests)
        return itertools.islice(requests, self.num_requests)

    def _fields(self, seed: int, name: str) -> Iterator[tuple[int, int, int, int]]:
        """Id, arrival, text tokens and output tokens, without end."""
        times = self.arrivals.chunks(stream(seed, name, "arrivals"))
        text, output = stream(seed, name, "text_tokens"), stream(seed, name, "output_tokens")
        for first, arrivals in zip(itertools.count(0, CHUNK), times, strict=False):
            texts, outputs = self.text_tokens.draw(text, CHUNK), self.output_tokens.draw(output, CHUNK)
            yield from zip(itertools.count(first), arrivals.tolist(), texts.tolist(), outputs.tolist(), strict=False)

    def _with_images(self, seed: int, model: VisionLanguageModel, name: str) -> Iterator[Request]:
        groups = [group.pictures(seed, f"{name}/{index}") for index, group in enumerate(self.images)]
        for fields, *lists in zip(self._fields(seed, name), *groups, strict=False):
            id, arrival, text, output = fields
            items = place(list(itertools.chain.from_iterable(lists)), text, model, self.placement)
            yield Request(id, arrival, text + sum(map(span, items)), output, items)


class Synthetic(Description):
    """One kind of client."""

    kind: Literal["synthetic"] = "synthetic"
