"""The seam between the loop and a world: a backend runs or prices a plan and says how long that took."""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from policies.plan import IterationPlan
from policies.request_state import RequestState
from sim.decode_run import DecodeRun


class Outcome(NamedTuple):
    """What an iteration took, in whole nanoseconds; with `run`, that many iterations of nothing but decodes."""

    host: int  # of each iteration
    encode: int
    compute: int  # of the only iteration, or of the first one of a run
    total: int  # of all of them
    run: DecodeRun | None = None  # what each iteration took in all
    failed: Sequence[RequestState] = ()  # whom the iteration failed
    reason: str = ""  # why


class Backend(Protocol):
    """Launch and wait are two calls so that planning can one day overlap the device."""

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Any:
        """Start one iteration, or up to `max_iterations` equal ones until one ends `horizon` ns from now or later."""

    def wait(self, handle: Any) -> Outcome:
        """Until it is over."""


class AccountingBackend(Backend, Protocol):
    """A backend that a run can be asked about afterwards."""

    @property
    def allocation_failures(self) -> int: ...

    @property
    def peak_encoder_bytes(self) -> int:
        """Encoder activations and outputs at their worst moment."""


B = TypeVar("B", bound=AccountingBackend)


class Around(Generic[B]):
    """A backend around another one, whose accounts are the run's."""

    def __init__(self, backend: B) -> None:
        self.backend = backend

    @property
    def allocation_failures(self) -> int:
        return self.backend.allocation_failures

    @property
    def peak_encoder_bytes(self) -> int:
        return self.backend.peak_encoder_bytes
