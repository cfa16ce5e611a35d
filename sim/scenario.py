"""A scenario: everything that a run depends on, decoded from YAML into the objects that act."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from policies import AnyPolicy
from policies.limits import Limits
from sim.files import usable
from sim.front_end import FrontEnd
from sim.pools import Pools
from sim.profiles import existing_profile
from sim.published import Published
from sim.scenario_file import load
from sim.slo import SLO
from workloads import AnyWorkload, Model
from workloads.errors import InputError
from workloads.frozen import Frozen, Whole

DECADES = 1e9  # seconds; with many more, nanoseconds would not fit an int64

Patience = Annotated[float, Field(gt=0, le=DECADES, allow_inf_nan=False)]
WarmUp = Annotated[float, Field(ge=0, le=DECADES, allow_inf_nan=False)]


def _name(value: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]{0,79}", value):
        raise InputError(
            f"names a folder: at most 80 letters, digits and . _ + -, a letter or digit first, not {value!r}"
        )
    return value


class Clients(Frozen):
    """How patient the clients are."""

    timeout: Patience | None = None  # seconds until a client cancels; left out: it waits forever


class Measure(Frozen):
    """What is recorded, and what the summary leaves out."""

    iterations: bool = True  # write the iterations table; without it long runs need far less memory
    warmup_requests: Whole = 0  # the first to arrive do not count
    warmup: WarmUp = 0.0  # nor do those that arrive in the first seconds


class Simulation(Frozen):
    """How the simulator works; of what is simulated only `out_of_memory` and `draw` change something."""

    fast_path: bool = True  # take many equal decode iterations in one step; the tables are the same without
    out_of_memory: Literal["fail_request", "end_run"] = "fail_request"  # what a batch past the device's memory does
    draw: Annotated[int, Field(ge=0, le=2**32)] | None = None  # of what the profile leaves uncertain; left out: none


class Scenario(Frozen):
    """One run, ready to be simulated: `Scenario.load("scenarios/x.yaml", {"policy.kind": "fcfs"})`."""

    name: Annotated[str, AfterValidator(_name)] = "scenario"  # left out: the file's
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    replications: Annotated[int, Field(ge=1, le=10_000)] = 1  # runs with successive seeds, whose means are shown
    model: Model
    profile: Annotated[
        str, AfterValidator(existing_profile)
    ]  # `<device>/<model>` in scenarios/profiles, or a JSON file
    workload: AnyWorkload
    policy: AnyPolicy
    engine: Limits = Limits()
    pools: Pools | None = None  # left out: one engine
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
        return load(cls, usable(path), set or {})
