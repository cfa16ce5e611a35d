"""Text before light images before heavy ones, as classes with a head start each, and with ageing."""

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from policies.builder import PlanBuilder
from policies.policy import FOREVER, Policy
from policies.request_state import RequestState
from policies.starting import serve_by

SECOND = 1_000_000_000  # nanoseconds
Points = Annotated[int, Field(ge=0, le=2**30)]


class ModalityClass(BaseModel):
    """How urgent requests of a class are when they arrive, and become."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: Points  # at arrival
    ageing: Points  # more for each second since


class Text(ModalityClass):
    """Requests without items."""

    weight: Points = 4
    ageing: Points = 1


class Light(ModalityClass):
    """Requests with few or small images."""

    weight: Points = 2
    ageing: Points = 1


class Heavy(ModalityClass):
    """All others."""

    weight: Points = 0
    ageing: Points = 2


class ModalityClasses(Policy):
    """Starts, encodes and prefills by points: those of a request's class at arrival, and more with every second.

    The classes are text, light (images of together at most `light_max_encoder_tokens`) and heavy (larger ones, and
    every video). Nobody passes one that cannot start. Requests start with all they need, so it never stalls; a class
    that does not age may starve.
    """

    kind: Literal["modality_classes"] = "modality_classes"
    source: ClassVar[str] = "after RPS-Serve (TCM-Serve), arXiv 2603.26498: modality classes with ageing"

    text: Text = Text()  # points of requests without items
    light: Light = Light()  # points of requests with few or small images
    heavy: Heavy = Heavy()  # points of all others
    light_max_encoder_tokens: Annotated[int, Field(ge=0, le=2**40)] = 4096  # of all images of a light request

    def schedule(self, builder: PlanBuilder) -> None:
        serve_by(builder, lambda r: self._urgency(r, builder.now))

    def stable_until(self, builder: PlanBuilder) -> int:
        """When first somebody overtakes the one before: only neighbours can be the first to change places.

        Of those who wait it only matters who is first, and within a class that is always the same one.
        """
        heads = self._heads(builder) if builder.has_seats else []
        ordered = sorted((*builder.contexts, *heads), key=lambda r: self._urgency(r, builder.now))
        return min((self._overtaken(*pair, builder.now) for pair in pairwise(ordered)), default=FOREVER)

    def _heads(self, builder: PlanBuilder) -> list[RequestState]:
        """The first to wait of each class."""
        heads: dict[type[ModalityClass], RequestState] = {}
        for request in builder.waiting:
            own = type(self._class_of(request))
            head = heads.get(own)
            if head is None or (request.arrival, request.id) < (head.arrival, head.id):
                heads[own] = request
        return [*heads.values()]

    def _urgency(self, request: RequestState, now: int) -> tuple[int, int, int]:
        return -self._points(request, now), request.arrival, request.id

    def _points(self, request: RequestState, now: int) -> int:
        """In billionths, so that they are whole at every nanosecond."""
        own = self._class_of(request)
        return own.weight * SECOND + own.ageing * (now - request.arrival)

    def _overtaken(self, first: RequestState, second: RequestState, now: int) -> int:
        """The first nanosecond at which the second has more points, or as many and the right of way."""
        gain = self._class_of(second).ageing - self._class_of(first).ageing
        if gain <= 0:
            return FOREVER
        ties = (second.arrival, second.id) < (first.arrival, first.id)
        behind = self._points(first, now) - self._points(second, now) + (not ties)
        return now + -(-behind // gain)

    def _class_of(self, request: RequestState) -> ModalityClass:
        if not request.items:
            return self.text
        if request.encoder_tokens > self.light_max_encoder_tokens:
            return self.heavy
        return self.heavy if "video" in request.modalities else self.light
