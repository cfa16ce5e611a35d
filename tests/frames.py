"""Small tables of requests and iterations, made by hand, for the tests of metrics and plots."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from policies.limits import Limits
from sim.engine_use import EngineUse
from sim.metrics import TTFT_PARTS
from sim.samples import WeightedSample
from sim.slo import SLO

ITERATION_COLUMNS = ["encode", "compute", "host", "num_items", "encoder_tokens", "num_prefill_tokens", "num_decodes"]
ITERATION_COLUMNS += ["context_tokens", "kv_blocks_used", "encoder_rows_held", "encoder_rows_resident"]
ITERATION_COLUMNS += ["num_running", "num_waiting"]


@dataclass
class Run:
    requests: pd.DataFrame
    iterations: pd.DataFrame
    itl_sample: WeightedSample
    slo: SLO = field(default_factory=SLO)
    limits: Limits = field(default_factory=Limits)
    name: str = "run"
    origin: str = "simulated"


def requests(token_times: Sequence[Sequence[float]], **columns: Any) -> pd.DataFrame:
    """A request per entry: its arrival, then the times of its tokens. None of them: it is unfinished."""
    table = pd.DataFrame({"request_id": range(len(token_times))})
    table["arrival"] = [times[0] for times in token_times]
    table["prepared"] = table["admitted"] = table["arrival"]
    table["first_token"] = np.array([times[1] if len(times) > 1 else np.nan for times in token_times], dtype=float)
    table["finish"] = np.array([times[-1] if len(times) > 1 else np.nan for times in token_times], dtype=float)
    table["output_tokens"] = [len(times) - 1 for times in token_times]
    table["prompt_tokens"], table["num_items"], table["encoder_tokens"], table["embeds"] = 10, 1, 16, 4
    table["ttft"] = table["first_token"] - table["arrival"]
    table["e2el"] = table["finish"] - table["arrival"]
    table["tpot"] = (table["e2el"] - table["ttft"]) / (table["output_tokens"] - 1).where(table["output_tokens"] > 1)
    for part in TTFT_PARTS:
        table[part] = table["ttft"] if part == "prefill" else 0.0
    table["num_encodes"], table["num_cache_hits"], table["num_cached_tokens"], table["num_preemptions"] = 1, 0, 0, 0
    table["status"] = np.where(table["finish"].notna(), "finished", "unfinished")
    table["reason"] = ""
    return table.assign(**columns)


def iterations(ends: Sequence[float], **columns: Any) -> pd.DataFrame:
    """Iterations one after the other from time 0."""
    table = pd.DataFrame({"iteration": range(len(ends)), "start": [0.0, *ends][: len(ends)], "end": list(ends)})
    return table.assign(**(dict.fromkeys(ITERATION_COLUMNS, 0) | columns)).astype({"start": float, "end": float})


def engine(table: pd.DataFrame) -> Callable[[float], EngineUse]:
    """What these iterations used, as a run's log tells the summary."""

    def use(start: float) -> EngineUse:
        late = table[table["end"] > start]
        busy = (late["encode"] + late["compute"] + late["host"]).sum()
        times = round(late["encode"].sum() * 1e9), round(busy * 1e9)
        most = (int(late[name].max()) if len(late) else 0 for name in ("kv_blocks_used", "encoder_rows_held"))
        return EngineUse(len(late), int(late["encoder_tokens"].sum()), *times, *most)

    return use


def gaps(*seconds: float) -> WeightedSample:
    values = np.rint(np.array(seconds) * 1e9).astype(np.int64)
    return WeightedSample(values, np.ones_like(values))
