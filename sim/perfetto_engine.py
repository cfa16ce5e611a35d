"""An engine in a timeline: what its host, its encoder and its language model did when, and how full it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.iteration_pieces import TIMES
from sim.perfetto_events import Event, between, counter, nanoseconds, slices

Ints = NDArray[np.int64]
Iterations = dict[str, Ints]  # columns of the iterations table, times in nanoseconds
Spans = Sequence[tuple[int, int]]

HOST, ENCODER, PREFILL, DECODE = range(1, 5)
LANES = {HOST: "host", ENCODER: "encoder", PREFILL: "prefill", DECODE: "decode"}


def iterations_of(table: pd.DataFrame) -> Iterations:
    columns = {str(name): table[name] for name in table if name != "engine"}
    return {name: nanoseconds(c) if name in TIMES else c.to_numpy(np.int64) for name, c in columns.items()}


def engine_slices(process: int, table: Iterations, spans: Spans | None) -> Iterator[Event]:
    """Of an iteration the host's time comes first, then the encoder's, then the language model's.

    `spans` are those of batches on a side stream, if there is one; then an iteration's `encode` is by how much they
    slowed the language model, and no time of its own.
    """
    host, encode = table["host"], table["encode"]
    numbers = [{"iteration": number} for number in table["iteration"].tolist()]
    yield from slices(process, HOST, table["start"], host, ["host"] * len(numbers), numbers)
    yield from _batches(process, spans) if spans is not None else _encoder(process, table, numbers)
    starts = table["start"] + host + (encode if spans is None else 0)
    durations = table["compute"] + (0 if spans is None else encode)
    for lane, name in ((PREFILL, "num_prefill_tokens"), (DECODE, "num_decodes")):
        some = np.flatnonzero(table[name])
        words = [f"{LANES[lane]} {amount}" for amount in table[name][some].tolist()]
        yield from slices(process, lane, starts[some], durations[some], words, [numbers[at] for at in some.tolist()])


def _batches(process: int, spans: Spans) -> Iterator[Event]:
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    nothing: list[dict[str, Any]] = [{} for _ in spans]
    return slices(process, ENCODER, starts, ends - starts, ["encode"] * len(spans), nothing)


def _encoder(process: int, table: Iterations, numbers: Sequence[dict[str, int]]) -> Iterator[Event]:
    some = np.flatnonzero(table["num_items"])
    words = [f"encode {items}" for items in table["num_items"][some].tolist()]
    tokens = table["encoder_tokens"][some].tolist()
    told = [numbers[at] | {"encoder_tokens": amount} for at, amount in zip(some.tolist(), tokens, strict=True)]
    starts = (table["start"] + table["host"])[some]
    return slices(process, ENCODER, starts, table["encode"][some], words, told)


def engine_counters(process: int, table: Iterations, row_bytes: int) -> Iterator[Event]:
    """What it holds while iterations run; between them it is empty, but for outputs that are kept for reuse."""
    shown: dict[str, tuple[Ints, int | None]] = {
        "KV blocks": (table["kv_blocks_used"], 0),
        "encoder cache held (bytes)": (table["encoder_rows_held"] * row_bytes, 0),
        "encoder cache resident (bytes)": (table["encoder_rows_resident"] * row_bytes, None),
        "running": (table["num_running"], 0),
        "waiting": (table["num_waiting"], 0),
    }
    for name, (values, idle) in shown.items():
        yield from counter(process, name, *between(table["start"], table["end"], values, idle))
