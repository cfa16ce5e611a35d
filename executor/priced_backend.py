"""A deterministic live run: every plan runs on the device, and the cost model says how long it took."""

from __future__ import annotations

from typing import Any

from executor.item_encoder import Encoded
from executor.torch_backend import Launched, TorchBackend
from policies.plan import IterationPlan
from sim.backend import Outcome
from sim.simulated import SimulatedBackend


class PricedBackend(TorchBackend):
    """What fits the memory is said by the simulated ledger too, so that all decisions are those of a simulation."""

    def __init__(self, priced: SimulatedBackend, *parts: Any) -> None:
        super().__init__(*parts)
        self.priced = priced

    @property
    def allocation_failures(self) -> int:  # type: ignore[override]  # a figure of the ledger here
        return self.priced.allocation_failures

    @property
    def peak_encoder_bytes(self) -> int:  # type: ignore[override]
        return self.priced.peak_encoder_bytes

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Launched:
        self._price = self.priced.launch(plan, max_iterations, horizon)
        return super().launch(plan, max_iterations, horizon)

    def _encode(self, plan: IterationPlan) -> Encoded:
        if not self._price.failed:
            return super()._encode(plan)
        mark = self.timer.mark()
        return Encoded(self._price.failed, self._price.reason, (mark, mark))

    def wait(self, handle: Launched) -> Outcome:
        super().wait(handle)
        return self._price._replace(failed=handle.failed, reason=handle.reason)
