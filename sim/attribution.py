"""Stall attribution: which iterations made running decodes wait too long, and whose encode or prefill they shared."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

Shared = Mapping[int, tuple[Collection[int], Collection[int]]]


def stall_attribution(iterations: pd.DataFrame, threshold: float, members: Shared | None = None) -> pd.DataFrame:
    """One row per iteration that carried decodes and took longer than `threshold` seconds, the longest first.

    `encode_share` is the share of the duration spent encoding. `members` gives, per iteration id, the ids of the
    requests it encoded for and those it prefilled; they become the columns `encoding` and `prefilling`.
    """
    duration = iterations["end"] - iterations["start"]
    stalled = (duration > threshold) & (iterations["num_decodes"] > 0)
    rows = iterations.loc[stalled, ["iteration", "num_decodes", "num_prefill_tokens", "encoder_tokens"]]
    rows.insert(1, "duration", duration[stalled])
    rows.insert(3, "encode_share", iterations.loc[stalled, "encode"] / duration[stalled])
    rows = rows.sort_values(["duration", "iteration"], ascending=[False, True], ignore_index=True)
    return rows if members is None else _with_members(rows, members)


def _with_members(rows: pd.DataFrame, members: Shared) -> pd.DataFrame:
    shared = [members.get(iteration, ((), ())) for iteration in rows["iteration"].tolist()]
    encoding = pd.Series([list(encoded) for encoded, _ in shared], dtype=object)
    prefilling = pd.Series([list(prefilled) for _, prefilled in shared], dtype=object)
    return rows.assign(encoding=encoding, prefilling=prefilling)


def blame(stalls: pd.DataFrame) -> dict[str, int]:
    """How many stalled gaps (one per decode in a stalled iteration) shared it with what."""
    encoding = ((stalls["encoder_tokens"] > 0) | (stalls["encode_share"] > 0)).to_numpy()  # or beside a side stream
    prefilling = (stalls["num_prefill_tokens"] > 0).to_numpy()
    gaps = stalls["num_decodes"].to_numpy(np.int64)
    return {
        "encode": int(gaps[encoding & ~prefilling].sum()),
        "prefill": int(gaps[prefilling & ~encoding].sum()),
        "encode and prefill": int(gaps[encoding & prefilling].sum()),
        "decodes alone": int(gaps[~encoding & ~prefilling].sum()),
    }
