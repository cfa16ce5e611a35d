"""A scenario on the real thing: the same loop and policy, with a device in the place of the cost model."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import simpy

from executor.clocks import HostMeter, timer_and_meter
from executor.devices import device_name
from executor.graphs import Graphs
from executor.interleave import Interleaved
from executor.memory_stats import MemoryMeter
from executor.messages import first_line
from executor.models import LoadedModel
from executor.options import Options
from executor.out_of_memory import is_out_of_memory
from executor.pictures import Pictures
from executor.prepare import longest_request
from executor.priced_backend import PricedBackend
from executor.prompts import Prompts
from executor.real_time import RealTime
from executor.runner import Runner
from executor.sampling import Sampler
from executor.torch_backend import TorchBackend
from executor.warmup import warm_up
from policies.plan import IterationPlan
from sim.backend import AccountingBackend, Outcome
from sim.engine import Engine
from sim.plan_log import PlanLog
from sim.result import Run
from sim.run import serve
from sim.simulated import SimulatedBackend
from sim.world import Resolved, World
from workloads.errors import InputError


class LiveEngine(Engine):
    """Its own time on the host is metered: not the clients', the front end's or the clock's."""

    def _serve(self) -> Generator[simpy.Event, None, None]:
        meter: HostMeter = self.backend.meter  # type: ignore[attr-defined]  # a live backend has one
        meter.start()
        for event in super()._serve():
            meter.stop()
            yield event
            meter.start()


class MeteredLog(PlanLog):
    """Writes the plan log, and that of encoder outputs within it, off the meter: a server would write neither."""

    def __init__(self, backend: AccountingBackend, meter: HostMeter, write: Callable[[str], None]) -> None:
        super().__init__(backend, write)
        self.meter = meter

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Any:
        self.meter.stop()  # the backend starts it again
        return super().launch(plan, max_iterations, horizon)

    def wait(self, handle: Any) -> Outcome:
        outcome = super().wait(handle)
        self.meter.start()
        return outcome


class LiveWorld(World):
    """One engine on one device; idle time is skipped unless the options ask for real time."""

    engine_type = LiveEngine
    stepwise = True

    def __init__(
        self, checked: Resolved, loaded: LoadedModel, options: Options, progress: Callable[[int], None] | None = None
    ) -> None:
        self.loaded = loaded
        self.options = options
        self.clock = options.clock or options.default_clock
        self.plans: list[str] = []
        self.notes: list[str] = []  # what the device would not do
        self.interleaved: Interleaved | None = None  # times shapes beside the run, where the options ask for it
        super().__init__(checked.scenario, checked.profile, progress)
        if isinstance(self.env, RealTime):
            self.env.sync()  # what building took is over

    @property
    def origin(self) -> str:  # type: ignore[override]  # told by the clock
        return "executed" if self.clock == "model" else "measured"

    @property
    def source(self) -> str:
        where = f"{device_name(self.loaded.device)}, {self.loaded.name} in {self.loaded.dtype_name}"
        if self.clock == "model":
            return f"executed on {where}; the times are the cost model's, {self.scenario.profile}, {self.profile.label}"
        return f"measured on {where}; clock: {self.clock}"

    def memory(self) -> dict[str, Any]:
        """Static memory in bytes, and on CUDA what the allocator counted."""
        static = {"weights_bytes": self.loaded.weight_bytes, "kv_bytes": 2 * self.runner.kv.keys.nbytes}
        return static | asdict(self._memory.read())

    def _environment(self) -> simpy.Environment:
        if self.options.real_time:
            return RealTime()
        return simpy.Environment(0)

    def _backend(self) -> AccountingBackend:
        loaded, options, seed = self.loaded, self.options, self.scenario.seed
        self._memory = MemoryMeter(loaded.device)
        self.runner = runner = Runner(loaded, self.scenario.engine, options)
        graphs = self._graphs()  # before the first forward, which may allocate from their memory
        largest = self.scenario.workload.largest_item(seed=seed, model=self.scenario.model)
        warm_up(runner, self.scenario.engine, largest)
        parts = (
            runner,
            Prompts(loaded, seed, options.text),
            Pictures(loaded.shape, seed, loaded.device, loaded.dtype, options.images),
            Sampler(options.temperature, seed, loaded.device, logprobs=options.logprobs),
            *timer_and_meter(self.clock, loaded.device),
        )
        if self.clock == "model":
            priced = super()._backend()
            assert isinstance(priced, SimulatedBackend)
            self.device_backend: TorchBackend = PricedBackend(priced, *parts)
        else:
            self.device_backend = TorchBackend(*parts)
        if graphs is not None:
            self.notes += graphs.warm_up()
            self.device_backend.graphs = graphs
        backend: TorchBackend | Interleaved = self.device_backend
        if options.calibrate_every:
            backend = self.interleaved = Interleaved(self.device_backend, options.calibrate_every, seed)
        return MeteredLog(self._with_memory_log(backend), backend.meter, self.plans.append)

    def _graphs(self) -> Graphs | None:
        """On a CPU only what pads: nothing is captured there."""
        options, limits = self.options, self.scenario.engine
        if not options.pad_queries and not (options.graphs and self.loaded.device.type == "cuda"):
            return None
        return Graphs(self.runner, limits, options, longest_request(self.scenario))


@dataclass
class LiveRun:
    """A run as a simulation gives it back, and what only a device can tell."""

    run: Run
    plans: list[str]  # the plan log's lines
    tokens: pa.Table  # request_id, tokens, and where asked for logprobs
    world: LiveWorld


def replay(
    checked: Resolved, loaded: LoadedModel, options: Options, *, progress: Callable[[int], None] | None = None
) -> LiveRun:
    """Serve the scenario's requests on the device. Raises InputError where it has no room."""
    try:
        world = LiveWorld(checked, loaded, options, progress)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(f"{loaded.device} has no room for the run: {first_line(error)}") from None
    run = serve(world, checked.notes)
    return LiveRun(run, world.plans, answers_of(world), world)


def answers_of(world: LiveWorld) -> pa.Table:
    """Answers in the order of request ids."""
    sequences = sorted(world.device_backend.sequences.items())
    columns: dict[str, Any] = {
        "request_id": pa.array([request for request, _ in sequences], pa.int64()),
        "tokens": pa.array([sequence.answer for _, sequence in sequences], pa.list_(pa.int32())),
    }
    if world.options.logprobs:
        columns["logprobs"] = pa.array([sequence.logprobs for _, sequence in sequences], pa.list_(pa.float32()))
    return pa.table(columns)
