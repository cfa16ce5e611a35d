"""Which world a scenario is simulated in: one engine, one whose encoder has a stream of its own, or several."""

from __future__ import annotations

from collections.abc import Callable

from policies.side_stream import SideStreamState
from sim.pool_world import PooledWorld
from sim.side_stream import SideStream, SideStreamEngine, SideStreamRecorder
from sim.world import Resolved, World


class SideStreamWorld(World):
    """One engine with a side stream."""

    engine_type = SideStreamEngine
    state_type = SideStreamState
    recorder_type = SideStreamRecorder
    engine: SideStreamEngine

    def _start_clients(self) -> None:
        interference = self.scenario.engine.encoder_side_stream_interference
        assert interference is not None, "resolve the scenario first"
        self.engine.stream = SideStream(interference.factor)
        super()._start_clients()

    def spans(self) -> dict[str, list[tuple[int, int]]]:
        return {"encoder_busy_fraction": self.engine.stream.spans}


def world_of(checked: Resolved, progress: Callable[[int], None] | None = None) -> World:
    """The world that a resolved scenario describes, ready to run."""
    scenario, kind = checked.scenario, World
    if scenario.pools is not None:
        kind = PooledWorld
    elif scenario.engine.encoder_side_stream_max_ahead:
        kind = SideStreamWorld
    return kind(checked.scenario, checked.profile, progress)
