"""The summary of a run: the keys of vLLM's `bench serve`, a few of SGLang's, and those of encoder and cache."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.load import load_verdict
from sim.peaks import peak_concurrency, peak_tokens
from sim.samples import WeightedSample
from sim.slo import SLO

__all__ = ["SLO", "TTFT_PARTS", "load_verdict", "summarise"]

Figures = dict[str, Any]
Columns = Mapping[str, Any]
Window = tuple[float, float]

PERCENTILES = (50, 90, 95, 99)
TTFT_PARTS = ("preparation", "queue_wait", "encode", "prefill", "reservation_wait", "encoder_budget_wait", "other")


def summarise(
    requests: pd.DataFrame,
    itl: WeightedSample,
    *,
    iterations: Sequence[Columns] | None = None,
    slo: SLO | None = None,
    warmup_requests: int = 0,
    warmup: float = 0.0,
    duration_window: Window | None = None,
    decode_steps: tuple[NDArray[np.int64], NDArray[Any]] | None = None,
) -> dict[str, int | float | None]:
    """Figures of the requests after the warm-up: per second, or in milliseconds where so named; None if undefined.

    The warm-up is the first `warmup_requests` to arrive and all that arrive in the first `warmup` seconds. Rates are
    taken over `duration_window` (start and end in seconds), by default from the warm-up's end to the last answer.
    `iterations` are pieces of that table; `decode_steps` tell when (ns) how many tokens were decoded. Latencies,
    tokens and rates are those of finished requests; `failed`, `rejected`, `cancelled`, `stalled` and `unfinished`
    count one status each.
    """
    measured, window = _after_warmup(requests, warmup_requests, warmup)
    start, end = duration_window or window
    if warmup_requests or warmup:
        itl = itl.since(round(start * 1e9))
        iterations = None if iterations is None else [_ending_after(start, piece) for piece in iterations]
    done = measured[measured["status"] == "finished"]
    figures = _counts(measured, done) | _rates(measured, done, end - start, slo)
    peak = math.nan if decode_steps is None else peak_tokens(done, *decode_steps, start, end)
    figures["max_output_tokens_per_s"] = peak
    figures["max_concurrent_requests"] = peak_concurrency(measured)
    figures |= _latencies(done, itl) | _encoder(measured) | _prefix_cache(done)
    if iterations is not None:
        figures |= _engine(iterations, end - start)
    return {name: _plain(figure) for name, figure in figures.items()}


def _after_warmup(requests: pd.DataFrame, count: int, seconds: float) -> tuple[pd.DataFrame, Window]:
    """The requests that count, and from when to when they were served."""
    start = requests["arrival"].min() + seconds
    measured = requests.sort_values("arrival", kind="stable").iloc[count:]
    measured = measured[measured["arrival"] >= start]
    return measured, (max(start, measured["arrival"].min()) if count else start, measured["finish"].max())


def _counts(measured: pd.DataFrame, done: pd.DataFrame) -> Figures:
    status = measured["status"].value_counts()
    tokens, vision = int(done["prompt_tokens"].sum()), int(done["embeds"].sum())
    return {
        "completed": len(done),
        **{name: status.get(name, 0) for name in ("failed", "rejected", "cancelled", "stalled", "unfinished")},
        "total_input_tokens": tokens,
        "total_input_text_tokens": tokens - vision,
        "total_input_vision_tokens": vision,
        "total_output_tokens": int(done["output_tokens"].sum()),
    }


def _rates(measured: pd.DataFrame, done: pd.DataFrame, duration: float, slo: SLO | None) -> Figures:
    good = int(slo.met(measured).sum()) if slo and slo.per_request else math.nan
    inputs, outputs = int(done["prompt_tokens"].sum()), int(done["output_tokens"].sum())
    return {
        "duration": duration,
        "request_throughput": _ratio(len(done), duration),
        "request_goodput": _ratio(good, duration),
        "slo_attainment": _ratio(good, len(measured)),
        "output_throughput": _ratio(outputs, duration),
        "total_token_throughput": _ratio(inputs + outputs, duration),
        "concurrency": _ratio(float(done["e2el"].sum()), duration),
    }


def _latencies(done: pd.DataFrame, itl: WeightedSample) -> Figures:
    figures = _of_requests("ttft", done) | _of_requests("tpot", done)
    figures |= _statistics("itl", itl.mean() / 1e6, itl.std() / 1e6, lambda q: itl.percentile(q) / 1e6)
    return figures | _of_requests("e2el", done) | {f"mean_{part}_ms": done[part].mean() * 1e3 for part in TTFT_PARTS}


def _of_requests(name: str, done: pd.DataFrame) -> Figures:
    """Of those for which it is defined: a one-token answer has no TPOT."""
    values = done[name].dropna().to_numpy(float) * 1e3
    if not values.size:
        return _statistics(name, math.nan, math.nan, lambda q: math.nan)
    return _statistics(name, values.mean(), values.std(), lambda q: np.percentile(values, q))


def _statistics(name: str, mean: float, std: float, percentile: Callable[[int], float]) -> Figures:
    percentiles = {f"p{q}": percentile(q) for q in PERCENTILES}
    figures = {"mean": mean, "median": percentiles["p50"], "std": std} | percentiles
    return {f"{statistic}_{name}_ms": figure for statistic, figure in figures.items()}


def _encoder(measured: pd.DataFrame) -> Figures:
    encodes, hits = int(measured["num_encodes"].sum()), int(measured["num_cache_hits"].sum())
    return {
        "num_encodes": encodes,
        "encoder_cache_hits": hits,
        "encoder_cache_hit_rate": _ratio(hits, encodes + hits),
        "num_preemptions": int(measured["num_preemptions"].sum()),
    }


def _prefix_cache(done: pd.DataFrame) -> Figures:
    """vLLM's prefix_cache_hits over its prefix_cache_queries, which count prompt tokens."""
    cached = int(done["num_cached_tokens"].sum())
    return {
        "total_cached_tokens": cached,
        "prefix_cache_hit_rate": _ratio(cached, int(done["prompt_tokens"].sum())),
    }


def _ending_after(start: float, piece: Columns) -> Columns:
    late = np.asarray(piece["end"]) > start
    return {name: np.asarray(values)[late] for name, values in piece.items()}


def _engine(iterations: Sequence[Columns], duration: float) -> Figures:
    """How busy the server was and how full; an iteration that began before the window counts wholly."""

    def seconds(*names: str) -> float:
        """Summed in whole nanoseconds, so that it does not matter how the table is cut into pieces."""
        return sum(int(np.rint(piece[name] * 1e9).sum()) for piece in iterations for name in names) / 1e9

    def most(name: str) -> float:
        return max((int(piece[name].max()) for piece in iterations if len(piece[name])), default=math.nan)

    return {
        "num_iterations": sum(len(piece["end"]) for piece in iterations),
        "total_encoder_tokens": sum(int(piece["encoder_tokens"].sum()) for piece in iterations),
        "encoder_busy_fraction": _ratio(seconds("encode"), duration),
        "engine_busy_fraction": _ratio(seconds("encode", "compute", "host"), duration),
        "max_kv_blocks_used": most("kv_blocks_used"),
        "max_encoder_rows_held": most("encoder_rows_held"),
    }


def _ratio(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else math.nan


def _plain(figure: Any) -> int | float | None:
    """As JSON knows it: a Python number, or None for what is undefined."""
    if not math.isfinite(figure):
        return None
    return int(figure) if isinstance(figure, int | np.integer) else float(figure)
