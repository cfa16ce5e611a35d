"""One row for every request that left, and its token times as slices of the log of decode steps."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from sim.kv_growth import blocks_taken
from sim.ledger import FULL, Ledger
from sim.served import NEVER, ServedRequest

Ints = NDArray[np.int64]
HandedOver = Callable[[Ints], Ints]

COUNTS = ("num_encodes", "num_cache_hits", "num_cached_tokens", "num_preemptions")
FIELDS = (
    *("request_id", "arrival", "prepared", "admitted", "first_token", "finish"),
    *("prompt_tokens", "output_tokens", "num_items", "encoder_tokens", "embeds"),
    *("encode", "prefill", "reservation_wait", "encoder_budget_wait"),
    *(*COUNTS, "status", "reason"),
    *("transfer", "requeued", "engine"),
)
ONLY = "0"  # the engine's name, where there is no other
SEGMENT = 6  # first token, next decode step, steps, tokens in the KV, continues the segment before, finished


def at_once(made: Ints) -> Ints:
    """When clients get what is made at these times (ns), where nothing is in between."""
    return made


class RequestLog:
    """Times are integer nanoseconds in here, -1 where they never came; the table has seconds and NaN."""

    def __init__(self) -> None:
        self._rows = Ledger(len(FIELDS))
        self._size = 0
        self._texts: dict[str, int] = {"": 0, ONLY: 1}
        self._only = 1
        self._segments = Ledger(SEGMENT)  # of each stretch of decoding

    def __len__(self) -> int:
        return self._size

    def close_segment(self, request: ServedRequest, decode_steps: int) -> None:
        """The request stops decoding before its answer is complete."""
        count = decode_steps - request.given_step
        request.segments = [*request.segments, (request.given, request.given_step, count, request.given_tokens)]
        request.given = NEVER

    def add(self, request: ServedRequest, decode_steps: int) -> None:
        asked, items, rows = request.request, request.items, self._rows
        if request.given >= 0 or request.segments:
            self._add_segments(request, decode_steps)
        if len(rows.page) >= FULL:
            rows.turn_page()
        joined = request.joined
        self._size += 1
        rows.page += rows.pack(
            request.id,
            request.arrival,
            request.prepared,
            request.admitted,
            request.first_token,
            request.finish,
            asked.prompt_tokens,
            request.num_generated + (decode_steps - joined if joined >= 0 else 0),
            len(items),
            sum(item.encoder_tokens for item in items) if items else 0,
            sum(item.embeds for item in items) if items else 0,
            request.encode,
            request.prefill,
            request.reservation_wait,
            request.budget_wait,
            request.num_encodes,
            request.num_cache_hits,
            request.num_cached_tokens,
            request.num_preemptions,
            self._texts.get(request.status) or self._code(request.status),
            self._code(request.reason) if request.reason else 0,
            request.transfer,
            request.requeued,
            self._code(">".join(request.path)) if request.path else self._only,
        )

    def _add_segments(self, request: ServedRequest, decode_steps: int) -> None:
        segments, finished, continues = self._segments, request.status == "finished", False
        for segment in request.segments:
            segments.page += segments.pack(*segment, continues, finished)
            continues = True
        time, step = request.given, request.given_step
        if time >= 0:
            segments.page += segments.pack(time, step, decode_steps - step, request.given_tokens, continues, finished)
        if len(segments.page) >= FULL:
            segments.turn_page()

    def _code(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def segments(self) -> Ints:
        """Rows of (first token, its next decode step, number of steps, whether it continues the row before).

        Those of finished requests.
        """
        table = self._segments.array().reshape(-1, SEGMENT)
        rows: Ints = table[table[:, 5] == 1][:, [0, 1, 2, 4]]
        return rows

    def finished_ids(self) -> Ints:
        """Those that have segments, in the same order."""
        rows = self._rows.array().reshape(-1, len(FIELDS))
        ids: Ints = rows[rows[:, FIELDS.index("status")] == self._texts.get("finished", -1), 0]
        return ids

    def blocks_taken(self, decode_steps: int, block_size: int) -> Ints:
        """As `sim.kv_growth` has it, of all that have decoded."""
        _, step, count, computed, _, _ = self._segments.array().reshape(-1, SEGMENT).T
        return blocks_taken(step, count, computed, decode_steps, block_size)

    def table(self, handed_over: HandedOver = at_once) -> pd.DataFrame:
        """All rows in the order of request ids. `handed_over` says when clients got what was made at a time (ns)."""
        rows = self._rows.array().reshape(-1, len(FIELDS))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        column = {name: rows[:, index] for index, name in enumerate(FIELDS)}
        column |= self._as_clients_saw(column, handed_over)
        ttft = _between(column["arrival"], column["first_token"])
        e2el = np.where(column["first_token"] < 0, -1, _between(column["arrival"], column["finish"]))
        parts = _parts(column, ttft)
        gaps = column["output_tokens"] - 1
        tpot = np.where((gaps > 0) & (e2el >= 0), (e2el - ttft) / np.maximum(gaps, 1) / 1e9, np.nan)
        return pd.DataFrame(
            {
                "request_id": column["request_id"],
                **{
                    name: _seconds(column[name])
                    for name in ("arrival", "prepared", "admitted", "first_token", "finish")
                },
                **{name: column[name] for name in FIELDS[6:11]},
                "ttft": _seconds(ttft),
                "tpot": tpot,
                "e2el": _seconds(e2el),
                **{name: _seconds(values) for name, values in parts.items()},
                **{name: column[name] for name in COUNTS},
                **{name: self._text(column[name]) for name in ("status", "reason", "engine")},
            },
            copy=False,
        )

    def _text(self, codes: Ints) -> pd.api.extensions.ExtensionArray:
        """Texts by their codes, without a Python object for each."""
        texts: pd.api.extensions.ExtensionArray
        texts = pd.array(pa.array(self._texts, pa.string()).take(pa.array(codes)), dtype="str")
        return texts

    def _as_clients_saw(self, column: dict[str, Ints], handed_over: HandedOver) -> dict[str, Ints]:
        """What reached a client after it had left, it never had."""
        made, finish = column["first_token"], column["finish"]
        finished = column["status"] == self._texts.get("finished", -1)
        first = np.where(made < 0, -1, handed_over(made))
        first = np.where(~finished & (finish >= 0) & (first > finish), -1, first)
        finish = np.where(finished, handed_over(finish), finish)
        return {"first_token": first, "finish": finish, "delivery": _between(made, first)}


def _between(start: Ints, end: Ints) -> Ints:
    """-1 where either time never came."""
    return np.where((start < 0) | (end < 0), -1, end - start)


def _seconds(nanoseconds: Ints) -> NDArray[np.float64]:
    return np.where(nanoseconds < 0, np.nan, nanoseconds / 1e9)


def _parts(column: dict[str, Ints], ttft: Ints) -> dict[str, Ints]:
    """Where the time to first token went: in whole nanoseconds the nine parts add up to it."""
    labelled = ("encode", "transfer", "prefill", "reservation_wait", "encoder_budget_wait", "delivery")
    parts = {
        "preparation": _between(column["arrival"], column["prepared"]),
        "queue_wait": _between(column["prepared"], column["admitted"]) + column["requeued"],
        **{name: column[name] for name in labelled},
    }
    known = sum(np.maximum(part, 0) for part in parts.values())
    parts["other"] = np.where(ttft < 0, -1, ttft - known)
    return parts
