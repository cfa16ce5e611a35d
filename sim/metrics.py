"""The summary of a run: the keys of vLLM's `bench serve`, a few of SGLang's, and those of encoder and cache."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.engine_use import EngineUse
from sim.load import load_verdict
from sim.peaks import peak_concurrency, peak_tokens
from sim.samples import WeightedSample
from sim.slo import SLO

__all__ = ["SLO", "TTFT_PARTS", "load_verdict", "summarise"]

Figures = dict[str, Any]
Window = tuple[float, float]

PERCENTILES = (50, 90, 95, 99)
TTFT_PARTS = (
    *("preparation", "queue_wait", "encode", "transfer", "prefill"),
    *("reservation_wait", "encoder_budget_wait", "delivery", "other"),
)


def summarise(
    requests: pd.DataFrame,
    itl: WeightedSample,
    *,
    engine: Callable[[float], EngineUse] | None = None,
    slo: SLO | None = None,
    warmup_requests: int = 0,
    warmup: float = 0.0,
    duration_window: Window | None = None,
    decode_steps: tuple[NDArray[np.int64], NDArray[Any]] | None = None,
    spans: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    num_engines: int = 1,
) -> dict[str, int | float | None]:
    """Figures of the requests after the warm-up: per second, or in milliseconds where so named; None if undefined.

    The warm-up is the first `warmup_requests` to arrive and all that arrive in the first `warmup` seconds. Rates are
    taken over `duration_window` (start and end in seconds), by default from the warm-up's end to the last answer.
    `engine` says what the iterations that ended after a time (s) used; `decode_steps` tell when (ns) how many tokens
    were decoded, `spans` when (ns) something else was busy, by the name of the figure that is its share of the time.
    Latencies, tokens and rates are those of finished requests; `failed`, `rejected`, `cancelled`, `stalled` and
    `unfinished` count one status each.
    """
    measured, window = _after_warmup(requests, warmup_requests, warmup)
    start, end = duration_window or window
    if warmup_requests or warmup:
        itl = itl.since(round(start * 1e9))
    finished = measured["status"] == "finished"
    done = measured if finished.all() else measured[finished]  # a table of all of them again takes a while
    figures = _counts(measured, done) | _rates(measured, done, end - start, slo)
    peak = math.nan if decode_steps is None else peak_tokens(done, *decode_steps, start, end)
    figures["max_output_tokens_per_s"] = peak
    figures["max_concurrent_requests"] = peak_concurrency(measured)
    figures |= _latencies(done, itl) | _encoder(measured) | _prefix_cache(done)
    if engine is not None:
        figures |= _engine(engine(start if warmup_requests or warmup else 0.0), (end - start) * num_engines)
    for name, those in (spans or {}).items():
        inside = sum(max(0, stop - max(begun, round(start * 1e9))) for begun, stop in those) / 1e9
        figures[name] = _ratio(inside, end - start)
    return {name: _plain(figure) for name, figure in figures.items()}


def _after_warmup(requests: pd.DataFrame, count: int, seconds: float) -> tuple[pd.DataFrame, Window]:
    """The requests that count, and from when to when they were served."""
    if not count and not seconds:
        return requests, (requests["arrival"].min(), requests["finish"].max())
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
    percentiles = dict(zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True))
    return _statistics(name, values.mean(), values.std(), percentiles.__getitem__)


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


def _engine(use: EngineUse, duration: float) -> Figures:
    """How busy the engines were in all their time, and how full; an iteration that began before it counts wholly."""
    return {
        "num_iterations": use.num_iterations,
        "total_encoder_tokens": use.encoder_tokens,
        "encoder_busy_fraction": _ratio(use.encode / 1e9, duration),
        "engine_busy_fraction": _ratio(use.busy / 1e9, duration),
        "max_kv_blocks_used": use.max_kv_blocks if use.num_iterations else math.nan,
        "max_encoder_rows_held": use.max_encoder_rows if use.num_iterations else math.nan,
    }


def _ratio(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else math.nan


def _plain(figure: Any) -> int | float | None:
    """As JSON knows it: a Python number, or None for what is undefined."""
    if not math.isfinite(figure):
        return None
    return int(figure) if isinstance(figure, int | np.integer) else float(figure)
