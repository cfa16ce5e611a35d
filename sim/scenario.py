"""A scenario: everything that a run depends on, decoded from YAML into the objects that act."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from policies import AnyPolicy
from policies.limits import Limits
from sim.front_end import FrontEnd
from sim.published import Published
from sim.scenario_file import decode, read
from sim.slo import SLO
from workloads import AnyWorkload, Model
from workloads.frozen import Frozen, NonNegative, Positive


class Clients(Frozen):
    """How patient the clients are."""

    timeout: Positive | None = None  # seconds until a client cancels; left out: it waits forever


class Measure(Frozen):
    """What is recorded, and what the summary leaves out."""

    iterations: bool = True  # write the iterations table; without it long runs need far less memory
    warmup_requests: NonNegativeInt = 0  # the first to arrive do not count
    warmup: NonNegative = 0.0  # nor do those that arrive in the first seconds


class Simulation(Frozen):
    """How the simulator works; none of it changes what is simulated but `out_of_memory`."""

    fast_path: bool = True  # take many equal decode iterations in one step; the tables are the same without
    out_of_memory: Literal["fail_request", "end_run"] = "fail_request"  # what a batch past the device's memory does


class Scenario(Frozen):
    """One run, ready to be simulated: `Scenario.load("scenarios/x.yaml", {"policy.kind": "fcfs"})`."""

    name: Annotated[str, Field(pattern=r"^[\w.+-]+$", max_length=80)] = "scenario"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    model: Model
    profile: str  # `<device>/<model>` in scenarios/profiles, or a JSON file
    workload: AnyWorkload
    policy: AnyPolicy
    engine: Limits = Limits()
    front_end: FrontEnd = FrontEnd()
    clients: Clients = Clients()
    slo: SLO = SLO()
    measure: Measure = Measure()
    simulation: Simulation = Simulation()
    published: Published | None = None

    @classmethod
    def load(cls, path: str | Path, set: Mapping[str, Any] | None = None) -> Scenario:
        """From a YAML file, with dotted paths set to other values first.

        Raises InputError, one line with the file and the path in it, for whatever is wrong.
        """
        file = Path(path)
        return decode(cls, read(file), file, set or {})
