"""Which engine of a pool a request goes to."""

from __future__ import annotations

from collections.abc import Sequence

from sim.pool_engine import PoolEngine


class Router:
    """Round robin, or the one with the fewest requests there or coming; of equals the first."""

    def __init__(self, engines: Sequence[PoolEngine], kind: str) -> None:
        self.engines = engines
        self.by_load = kind == "least_loaded"
        self._turn = 0

    def pick(self) -> PoolEngine:
        if self.by_load:
            return min(self.engines, key=lambda engine: engine.load)
        engine = self.engines[self._turn]
        self._turn = (self._turn + 1) % len(self.engines)
        return engine
