"""What every workload can do: give requests in arrival order, and say what the largest item among them may be."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from workloads.arrivals import Concurrency
from workloads.models import DELIMITERS, VisionLanguageModel
from workloads.request import MultimodalItem, Request


class Workload(Protocol):
    """A source of requests. The same seed and model give the same requests."""

    def requests(self, *, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        """Lazily, numbered from 0 in arrival order. InputError on unreadable input."""
        ...

    def largest_item(self, *, seed: int, model: VisionLanguageModel) -> MultimodalItem | None:
        """The most expensive item that can occur; None where there is none."""
        ...

    @property
    def closed_loop(self) -> Concurrency | None:
        """The crowd of a closed loop, where the client decides when to send; None in an open one."""
        ...

    @property
    def num_requests(self) -> int | None:
        """How many there will be; None where only reading tells."""
        ...


def largest(items: Iterable[MultimodalItem]) -> MultimodalItem | None:
    """The item with the most encoder tokens, the first of equals."""
    return max(items, key=lambda item: item.encoder_tokens, default=None)


def span(item: MultimodalItem) -> int:
    """Prompt tokens of an item with its delimiters, which stand outside its `length`."""
    return item.length + DELIMITERS
