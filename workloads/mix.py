"""Several kinds of client at once, each with its own arrivals, merged in time."""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from workloads.arrivals import Concurrency, OpenArrivals
from workloads.frozen import Frozen
from workloads.models import VisionLanguageModel
from workloads.request import MultimodalItem, Request
from workloads.synthetic import Description
from workloads.workload import largest


class Client(Description):
    """A named kind of client in a mix; open loop only, since merging needs arrival times."""

    name: Annotated[str, Field(min_length=1)]
    arrivals: OpenArrivals


class Mix(Frozen):
    """Clients side by side; requests that arrive together are in the order of the list."""

    kind: Literal["mix"] = "mix"
    clients: Annotated[tuple[Client, ...], Field(min_length=1, max_length=1000)]  # each draws in chunks of its own

    @model_validator(mode="after")
    def _names_differ(self) -> "Mix":
        names = [client.name for client in self.clients]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two clients are called {min(twice)!r}; their draws would be the same")
        return self

    @property
    def closed_loop(self) -> Concurrency | None:
        return None

    @property
    def num_requests(self) -> int:
        return sum(client.num_requests for client in self.clients)

    def largest_item(self, *, seed: int, model: VisionLanguageModel) -> MultimodalItem | None:
        """The largest of any client's."""
        items = (client.largest_item(seed=seed, model=model) for client in self.clients)
        return largest(item for item in items if item)

    def requests(self, *, seed: int, model: VisionLanguageModel) -> Iterator[Request]:
        """All clients' requests, numbered anew."""
        sources = (client.requests(seed=seed, model=model, name=client.name) for client in self.clients)
        merged = heapq.merge(*sources, key=attrgetter("arrival"))  # keeps the order of sources among equals
        for id, r in enumerate(merged):
            yield Request(id, *r[1:])
