"""The simulated world: the cost model tells the time, the memory ledger what fits."""

from collections.abc import Iterable, Sequence
from functools import partial

from policies.encode_only import EncodeState
from policies.plan import IterationPlan
from policies.request_state import RequestState
from policies.serving import ServingState
from policies.units import in_bytes
from sim.backend import Outcome
from sim.beyond import Beyond
from sim.cost_model import CostModel
from sim.decode_run import SHIFT
from sim.memory import MemoryLedger
from sim.profiles import Profile
from workloads.models import VisionLanguageModel

_outcome = partial(tuple.__new__, Outcome)  # what a NamedTuple does for itself takes twice as long


class SimulatedBackend:
    """Prices plans. A batch of items that does not fit the device's memory, activations and outputs, fails whole."""

    computes = True  # whether it runs the language model

    def __init__(
        self,
        cost: CostModel,
        state: ServingState,
        ledger: MemoryLedger,
        beyond: Beyond,
        *,
        kv_bytes: int,
        row_bytes: int,
    ) -> None:
        """`kv_bytes` of the whole KV pool, `row_bytes` of one row of encoder output."""
        self.cost = cost
        self.beyond = beyond  # of the range of the timings behind `cost`, for iterations that encode or prefill
        self.state = state
        self.ledger = ledger
        self.kv_bytes = kv_bytes
        self.row_bytes = row_bytes
        self.allocation_failures = 0
        self.peak_encoder_bytes = 0  # activations and outputs at their worst moment

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Outcome:
        if plan.encode:
            return self._encoding(plan)
        if plan.prefill:
            return self._prefilling(plan)
        cost = self.cost
        if max_iterations == 1:
            compute = cost.decodes_alone(plan.num_decodes, plan.context_tokens)
            return _outcome((cost.host, 0, compute, cost.host + compute, None, (), ""))
        run, total = cost.decode_run(plan.num_decodes, plan.context_tokens, max_iterations, horizon)
        return _outcome((cost.host, 0, (run.rest + run.first >> SHIFT) - cost.host, total, run, (), ""))

    def wait(self, handle: Outcome) -> Outcome:
        return handle

    def _prefilling(self, plan: IterationPlan) -> Outcome:
        cost = self.cost
        chunks = [(tokens, r.num_computed_tokens) for r, tokens in plan.prefill]
        compute = cost.compute(chunks, plan.num_decodes, plan.context_tokens)
        self.beyond.iteration((), chunks, plan.num_decodes, plan.context_tokens)
        return _outcome((cost.host, 0, compute, cost.host + compute, None, (), ""))

    def _encoding(self, plan: IterationPlan) -> Outcome:
        """And prefilling, except for those whom it fails."""
        cost, failed = self.cost, self._without_memory(plan)
        calls = [] if failed else [frames(call) for call in plan.encoder_calls()]
        encode = sum(cost.encode(*call) for call in calls)
        chunks = [(tokens, r.num_computed_tokens) for r, tokens in plan.prefill if r not in failed]
        compute = cost.compute(chunks, plan.num_decodes, plan.context_tokens)
        if self.computes:
            self.beyond.iteration(calls, chunks, plan.num_decodes, plan.context_tokens)
        else:
            self.beyond.iteration(calls, (), 0, 0)
        total = cost.host + encode + compute
        return _outcome((cost.host, encode, compute, total, None, failed, self._shortage(plan) if failed else ""))

    def _without_memory(self, plan: IterationPlan) -> Sequence[RequestState]:
        """Owners of the batch's outputs if it does not fit beside what the cache holds, else nobody."""
        rows = self.state.cache.resident_rows
        tokens = largest_call(plan)
        used = self.ledger.encoder_activations(tokens) + rows * self.row_bytes
        self.peak_encoder_bytes = max(self.peak_encoder_bytes, used)
        if not self.ledger.overflow(self.kv_bytes, tokens, rows, self.row_bytes):
            return ()
        self.allocation_failures += 1
        keys = {request.keys[index] for request, index in plan.encode}
        owners = [*plan.encode, *plan.attached]
        return list(dict.fromkeys(request for request, index in owners if request.keys[index] in keys))

    def _shortage(self, plan: IterationPlan) -> str:
        """How much is missing, and what to change."""
        tokens, rows = largest_call(plan), self.state.cache.resident_rows
        missing = self.ledger.overflow(self.kv_bytes, tokens, rows, self.row_bytes)
        return (
            f"out of memory: encoding {tokens:,} tokens beside {rows:,} rows needs {in_bytes(missing)} more than the "
            "device has: lower free_gpu_memory_fraction or num_kv_blocks, or bound encoder_max_num_tokens and "
            "encoder_cache_rows (unbudgeted ignores these two)"
        )


class EncodeBackend(SimulatedBackend):
    """Of an engine that only encodes: whom it hands over costs it nothing."""

    computes = False

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> Outcome:
        host = self.cost.host
        if not plan.encode:
            return Outcome(host, 0, 0, host)
        outcome = self._encoding(plan)
        return outcome._replace(compute=0, total=host + outcome.encode)


def backend_type(state: ServingState) -> type[SimulatedBackend]:
    return EncodeBackend if isinstance(state, EncodeState) else SimulatedBackend


def simulated_backend(
    kind: type[SimulatedBackend], profile: Profile, state: ServingState, model: VisionLanguageModel
) -> SimulatedBackend:
    """For a device of its own, or one of its ranks, as all are alike. An engine that only encodes has no KV pool."""
    pool, blocks = state.pool, 0 if issubclass(kind, EncodeBackend) else state.pool.num_blocks
    kv_bytes = blocks * pool.block_size * model.kv_bytes_per_rank(profile.source.gpus)
    cost, ledger = CostModel.from_profile(profile), MemoryLedger.from_profile(profile)
    return kind(cost, state, ledger, Beyond(profile.range), kv_bytes=kv_bytes, row_bytes=model.embedding_row_bytes)


def largest_call(plan: IterationPlan) -> int:
    """Encoder tokens of the plan's largest encoder call."""
    return max(sum(request.items[index].encoder_tokens for request, index in call) for call in plan.encoder_calls())


def frames(call: Iterable[tuple[RequestState, int]]) -> tuple[int, int]:
    """Sum and sum of squares of the encoder tokens of every frame to encode: attention stays within a frame."""
    tokens = squares = 0
    for request, index in call:
        num_frames, height, width = request.items[index].grid
        frame = height * width
        tokens += num_frames * frame
        squares += num_frames * frame * frame
    return tokens, squares
