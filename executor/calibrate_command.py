"""One `tandem calibrate`: times shapes of a model on a device, for `tandem fit` to make a profile of."""

from __future__ import annotations

from pathlib import Path

import torch

from executor.calibrate_batches import Stopwatch
from executor.calibrate_file import Calibration, Host
from executor.calibrate_host import host_of
from executor.calibrate_rounds import Timing, noise, time_in_rounds
from executor.calibrate_shapes import STAGES, Shape, grid_for
from executor.clocks import timer_and_meter
from executor.devices import device_named, dtype_named, free_bytes
from executor.graphs import Graphs
from executor.messages import first_line
from executor.models import LoadedModel, load_model
from executor.options import Options
from executor.out_of_memory import is_out_of_memory
from executor.runner import Runner
from policies.limits import Limits
from sim.command import INTERRUPTED
from sim.files import check_writable, usable
from sim.progress import ProgressBar
from workloads.errors import InputError

REPEATS = {"cpu": 15, "cuda": 7}
QUICK_REPEATS = 5
BLOCK_SIZE = 16
SEED = 0
KV_PART = 0.5  # of the memory that is free; the rest is for activations and graphs


class CalibrateCommand:
    """Raises InputError for wrong input and for a model that does not fit, before anything is timed."""

    def __init__(
        self, model: str, device: str, dtype: str | None, clock: str | None, out: Path | None, repeats: int | None,
        quick: bool, threads: int = 1,
    ) -> None:  # fmt: skip
        if repeats is not None and repeats < 1:
            raise InputError(f"repeats: {repeats} is not at least 1")
        if clock == "model":
            raise InputError("clock: the cost model is what a calibration is for; cuda, wall or thread_time")
        where = device_named(device)
        self.clock = clock or ("cuda" if where.type == "cuda" else "thread_time")
        self.options = Options(device=device, clock=self.clock, threads=threads)
        torch.set_num_threads(threads)
        self.loaded: LoadedModel = load_model(model, where, dtype_named(dtype, where), seed=SEED)
        self.quick = quick
        self.repeats = repeats or (QUICK_REPEATS if quick else REPEATS[where.type])
        self.out = usable(out) if out else Path("runs", "calibration", f"{self.loaded.shape.name}-{where.type}.csv")
        self.notes: list[str] = []
        self._check_out()

    def _check_out(self) -> None:
        """Before minutes of timing."""
        check_writable(self.out)

    def __call__(self) -> int:
        """Do it all; returns the exit code."""
        try:
            host = host_of(self.loaded, self.options)
            timings, interrupted = self._time()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise InputError(f"{self.loaded.device}: {first_line(error)}") from None
        seen = noise(timings)
        if timings:
            self._write(timings, host, seen, interrupted)
        self._report(timings, host, seen)
        return INTERRUPTED if interrupted else 0

    def _time(self) -> tuple[list[Timing], bool]:
        on_cuda = self.loaded.device.type == "cuda"
        shapes = self._fitting(grid_for(self.loaded.shape, on_cuda=on_cuda, quick=self.quick))
        stopwatch = self._stopwatch(shapes)
        total = len(shapes) * (self.repeats + 1)
        with ProgressBar(f"calibrate {self.loaded.name}", total) as progress:
            return time_in_rounds(shapes, stopwatch.time, repeats=self.repeats, seed=SEED, done=progress)

    def _fitting(self, shapes: list[Shape]) -> list[Shape]:
        """Those whose keys and values find room on the device beside the weights."""
        block_bytes = BLOCK_SIZE * self.loaded.shape.kv_bytes_per_token
        room = int(KV_PART * free_bytes(self.loaded.device)) // block_bytes
        fitting = [shape for shape in shapes if _blocks(shape) <= room]
        if len(fitting) < len(shapes):
            self.notes.append(f"{len(shapes) - len(fitting)} shapes left out: no room for their keys and values")
        if missing := set(STAGES) - {shape.stage for shape in fitting}:
            raise InputError(f"{self.loaded.device}: no room for any shape of {', '.join(sorted(missing))}")
        return fitting

    def _stopwatch(self, shapes: list[Shape]) -> Stopwatch:
        most = max(len(shape.contexts) + len(shape.chunks) for shape in shapes)
        tokens = max(sum(chunk for chunk, _ in shape.chunks) for shape in shapes) + most
        limits = Limits(
            max_num_seqs=most,
            max_num_batched_tokens=tokens,
            block_size=BLOCK_SIZE,
            num_kv_blocks=max(map(_blocks, shapes)),
            encoder_cache_rows=1,
        )
        runner = Runner(self.loaded, limits, self.options)
        for cache in (runner.kv.keys, runner.kv.values):
            cache.normal_()  # zeros would take less power
        timer, _ = timer_and_meter(self.clock, self.loaded.device)
        return Stopwatch(runner, timer, self._graphs(runner, limits, shapes), SEED)

    def _graphs(self, runner: Runner, limits: Limits, shapes: list[Shape]) -> Graphs | None:
        """As a live run has them."""
        if self.loaded.device.type != "cuda":
            return None
        longest = max(max(shape.contexts, default=1) for shape in shapes)
        graphs = Graphs(runner, limits, self.options, -(-longest // BLOCK_SIZE))
        self.notes += graphs.warm_up()
        return graphs

    def _write(self, timings: list[Timing], host: Host, seen: dict[str, float], interrupted: bool) -> None:
        how = f"{len(timings)} shapes, each {self.repeats} times in rounds of another order each (seed {SEED})"
        rows = [timing.row() for timing in timings]
        Calibration(self.loaded, self.clock, rows, host, how, seen, interrupted, self.notes).write(self.out)

    def _report(self, timings: list[Timing], host: Host, seen: dict[str, float]) -> None:
        for note in self.notes:
            print(note)
        if not timings:
            print("nothing timed yet, nothing written")
            return
        print(f"{self.out}: {len(timings)} shapes of {self.loaded.name}, host {host.ms:.3f} ms an iteration")
        if seen:
            print("noise (CV of repeats): " + ", ".join(f"{stage} {percent} %" for stage, percent in seen.items()))


def _blocks(shape: Shape) -> int:
    return max(1, sum(-(-total // BLOCK_SIZE) for total in shape.totals))
