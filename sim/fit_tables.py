"""Makes a profile's tables from timings: never falling, and filled where nothing was timed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sim.cost_tables import EncodeTable, GemmTable
from sim.regression import Fit, Floats, encoder_ms, num_tokens

DIGITS = 6
FROM_TIMINGS = "the timings themselves, brought to never falling: mean of the greatest so far and the least to come"
FILLED = "; where nothing was timed, as the formula goes on from the most images that were"


def encode_table(rows: pd.DataFrame, c: Fit) -> EncodeTable | None:
    """Of encoder rows, the coefficients of whose formula are `c`; none where there is no grid to speak of."""
    encoder = rows[rows.stage == "encoder"]
    ratios = encoder.assign(ratio=encoder.total_ms / encoder_ms(c, encoder))
    grid = ratios.pivot_table(index="images", columns="tokens", values="ratio")
    if min(grid.shape) < 2:
        return None
    shapes = pd.MultiIndex.from_product([grid.index, grid.columns]).to_frame(index=False)
    formula = encoder_ms(c, shapes).reshape(grid.shape)
    ms = _monotone(grid.ffill().bfill().to_numpy() * formula)
    return EncodeTable(
        images=tuple(grid.index),
        tokens=tuple(grid.columns),
        ms=tuple(map(_rounded, ms)),
        source=FROM_TIMINGS + FILLED,
    )


def gemm_table(rows: pd.DataFrame) -> GemmTable:
    """Of prefill and decode rows that have a column of their own for it."""
    times = rows.gemm_ms.groupby(num_tokens(rows).astype(int)).mean()
    return GemmTable(tokens=tuple(times.index.tolist()), ms=_rounded(_monotone(times.to_numpy())), source=FROM_TIMINGS)


def _monotone(ms: Floats) -> Floats:
    """Never falling along any axis: between the greatest so far and the least still to come."""
    so_far, to_come = ms, ms
    for axis in range(ms.ndim):
        so_far = np.maximum.accumulate(so_far, axis=axis)
        to_come = np.flip(np.minimum.accumulate(np.flip(to_come, axis), axis=axis), axis)
    return np.asarray((so_far + to_come) / 2)


def _rounded(ms: Floats) -> tuple[float, ...]:
    return tuple(float(f"{time:.{DIGITS}g}") for time in ms.tolist())
