"""How a live run executes: none of it is the scenario's, and none of it changes what a policy sees but the time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from executor.rows import Storage
from workloads.errors import InputError

MOST_THREADS = 1024
ClockName = Literal["cuda", "wall", "thread_time", "model"]


@dataclass(frozen=True)
class Options:
    """What `tandem replay` can be told. Raises InputError for what cannot be."""

    device: str = "cpu"
    model: str | None = None  # left out: the scenario's
    dtype: str | None = None  # left out: bfloat16 on CUDA, float32 on CPU
    threads: int = 1  # of the CPU; two beside one busy core take twenty times as long as one
    clock: ClockName | None = None  # left out: `default_clock`
    real_time: bool = False  # arrivals at their times by the wall clock; else idle time is skipped
    temperature: float = 0.0
    logprobs: bool = False
    encoder_storage: Storage = "rows"
    encoder_in_graph_pool: bool = False  # the encoder's forward allocates from the graphs' memory
    graphs: bool = True  # CUDA graphs for decode batches
    pad_queries: int = 0  # mixed batches padded to a multiple of so many tokens and captured; 0: run as they are
    images: Path | None = None  # a folder of picture files; left out: generated pixels
    calibrate_every: int = 0  # time one shape after so many iterations, off the clock; 0: none
    text: Path | None = None  # a file of words, for a real model's tokenizer; left out: random token ids

    def __post_init__(self) -> None:
        self._check_values()
        self._check_combinations()

    def _check_values(self) -> None:
        if self.temperature and not 1e-3 <= self.temperature <= 1e3:
            raise InputError(f"temperature: {self.temperature} is neither 0 nor from 0.001 to 1000")
        if self.clock is not None and self.clock not in get_args(ClockName):
            raise InputError(f"clock: there is no {self.clock!r}; {', '.join(get_args(ClockName))}")
        if self.encoder_storage not in get_args(Storage):
            raise InputError(f"encoder_storage: there is no {self.encoder_storage!r}; {', '.join(get_args(Storage))}")
        if self.pad_queries < 0:
            raise InputError("pad_queries is a number of tokens, 0 for none")
        if not 1 <= self.threads <= MOST_THREADS:
            raise InputError(f"threads is a number of threads, from 1 to {MOST_THREADS}")
        if self.calibrate_every < 0:
            raise InputError("calibrate_every is a number of iterations, 0 for none")

    def _check_combinations(self) -> None:
        if self.calibrate_every and (self.real_time or self.clock == "model"):
            raise InputError(
                "calibrate_every: timing shapes takes time, which only --clock cuda, wall or thread_time "
                "can leave out, and real time cannot"
            )
        on_cuda = self.device.startswith("cuda")
        if self.clock == "cuda" and not on_cuda:
            raise InputError("clock: cuda events time a CUDA device; wall, thread_time or model go with --device cpu")
        if self.encoder_in_graph_pool and not on_cuda:
            raise InputError("encoder_in_graph_pool: there are no graphs, and no pool of theirs, without CUDA")
        if self.real_time and self.clock == "model":
            raise InputError("real time goes with a clock that tells it: not with model")

    @property
    def default_clock(self) -> ClockName:
        """As `tandem calibrate` times; in real time what the wall shows."""
        if self.real_time:
            return "wall"
        return "cuda" if self.device.startswith("cuda") else "thread_time"

    def about(self) -> dict[str, Any]:
        """For live.json."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
