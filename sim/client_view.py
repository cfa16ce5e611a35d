"""A run as its clients saw it, of a real server or a simulated one: its requests, and the gaps between their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from policies.limits import Limits
from sim.load import load_verdict
from sim.metrics import TTFT_PARTS, summarise
from sim.request_log import ONLY
from sim.samples import WeightedSample
from sim.scenario import Scenario
from sim.slo import SLO
from workloads.request import Request

Ints = NDArray[np.int64]
Gaps = tuple[Ints, Ints]  # ids of requests, and as many gaps between two of their tokens (ns), in their order

UNSEEN = (  # figures that only the server knows
    *("total_input_text_tokens", "total_input_vision_tokens", "num_encodes", "encoder_cache_hits"),
    *("encoder_cache_hit_rate", "num_preemptions"),
)


class Seen(NamedTuple):
    """One request, times in nanoseconds on the client's clock; None is what never came, or was not recorded."""

    arrival: int  # when it was sent
    prompt_tokens: int | None
    output_tokens: int | None
    ttft: int | None
    e2el: int | None  # until the last token
    gaps: Sequence[int] | None = None  # between tokens, or where several come at once between those
    num_items: int = 0
    status: str = "finished"  # failed, cancelled, unfinished
    reason: str = ""


@dataclass(frozen=True, eq=False)
class ClientView:
    """One run; it has what plots ask of one, as far as a client can see that."""

    source: str  # of its times
    name: str
    requests: pd.DataFrame  # the columns of a run's table; NaN is what a client cannot see
    gaps: Gaps | None  # of finished requests; None where they were not recorded
    label: str = ""  # of several runs in one file
    origin: str = "measured"
    scenario: Scenario | None = None  # resolved; of a measured run nobody knows it

    limits = Limits()
    iterations = pd.DataFrame()

    @property
    def slo(self) -> SLO:
        return SLO() if self.scenario is None else self.scenario.slo

    @property
    def itl_sample(self) -> WeightedSample:
        values = np.zeros(0, np.int64) if self.gaps is None else self.gaps[1]
        return WeightedSample(values, np.ones_like(values))

    @property
    def load(self) -> str | None:
        return load_verdict(self.requests)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The keys of a run's; null is what a client cannot see."""
        figures = summarise(self.requests, self.itl_sample, decode_steps=self._token_times())
        return figures | dict.fromkeys(UNSEEN)

    def _token_times(self) -> tuple[Ints, Ints] | None:
        """When each token but the first came (ns), and that it was one."""
        if self.gaps is None:
            return None
        owners, gaps = self.gaps
        first = np.rint(self.requests["first_token"].to_numpy(float) * 1e9)[owners]
        since = np.cumsum(gaps)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        before = np.repeat(since[starts] - gaps[starts], np.diff(starts, append=len(gaps)))
        ends = np.sort((first + since - before).astype(np.int64))
        return ends, np.ones_like(ends)

    def trace(self) -> list[Request]:
        """The load that was sent, to be simulated: the requests whose lengths are known, images among their tokens."""
        rows = self.requests[(self.requests["prompt_tokens"] > 0) & (self.requests["output_tokens"] > 0)]
        arrivals = np.rint(rows["arrival"].to_numpy(float) * 1e9).astype(np.int64).tolist()
        lengths = rows[["prompt_tokens", "output_tokens"]].astype(int).itertuples(index=False)
        return [Request(id, at, *pair) for id, (at, pair) in enumerate(zip(arrivals, lengths, strict=True))]


def client_view(source: str, name: str, seen: Sequence[Seen], label: str = "") -> ClientView:
    """Of requests in the order in which they were sent, from the first one on."""
    rows = sorted(seen, key=lambda one: one.arrival)
    return ClientView(source, name, _table(rows), _gaps(rows), label)


def _table(rows: Sequence[Seen]) -> pd.DataFrame:
    arrival = np.array([one.arrival - rows[0].arrival for one in rows], np.int64)
    ttft, e2el, prompt, output = (_column(rows, name) for name in ("ttft", "e2el", "prompt_tokens", "output_tokens"))
    unseen = np.full(len(rows), np.nan)
    return pd.DataFrame(
        {
            "request_id": np.arange(len(rows)),
            "arrival": arrival / 1e9,
            **dict.fromkeys(("prepared", "admitted"), unseen),
            "first_token": (arrival + ttft) / 1e9,
            "finish": (arrival + e2el) / 1e9,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "num_items": np.array([one.num_items for one in rows], np.int64),
            **dict.fromkeys(("encoder_tokens", "embeds"), unseen),
            "ttft": ttft / 1e9,
            "tpot": (e2el - ttft) / np.where(output > 1, output - 1, np.nan) / 1e9,
            "e2el": e2el / 1e9,
            **dict.fromkeys((*TTFT_PARTS, "num_encodes", "num_cache_hits", "num_preemptions"), unseen),
            "status": np.array([one.status for one in rows], object),
            "reason": np.array([one.reason for one in rows], object),
            "engine": np.array([ONLY] * len(rows), object),
        }
    )


def _column(rows: Sequence[Seen], name: str) -> NDArray[np.float64]:
    return np.array([np.nan if getattr(one, name) is None else getattr(one, name) for one in rows], float)


def _gaps(rows: Sequence[Seen]) -> Gaps | None:
    finished = [(id, one.gaps) for id, one in enumerate(rows) if one.status == "finished"]
    known = [(id, gaps) for id, gaps in finished if gaps is not None]
    if not known or len(known) < len(finished):
        return None
    owners = np.repeat([id for id, _ in known], [len(gaps) for _, gaps in known])
    return owners, np.array([gap for _, gaps in known for gap in gaps], np.int64)
