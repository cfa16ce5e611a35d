"""Least squares of the cost model's formula on a table of timings whose parts were timed apart.

Rows are those of a profile's CSV (`sim.timings`); coefficients are in milliseconds and never negative. Sums are fitted
before rows are: the summed prediction of each part of each stage is its summed time, as far as the formula can follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from sim.cost_tables import NO_TABLES, Tables
from sim.timings import has_parts

Floats = NDArray[np.float64]
Fit = dict[str, float]

# Residuals are divided by total_ms ** 0.8, which is nearly relative. At 1.0 mixed iterations come out a few tenths of a
# percent worse, at 0.5 the small iterations suffer.
WEIGHT = 0.8
SUMS = 30.0  # how much a sum weighs against all rows together
GEMM = ("G0", "G1", "G2", "p")
GEMM_BOUNDS = (np.array([0.0, 0.0, 0.0, 1.0]), np.array([1e5, 1e3, 1e3, 64.0]))
POWER, SLOPE = 2.0, 0.05  # where the search begins: p, and G2's part of the cost per token
TIGHT = {"xtol": 1e-13, "ftol": 1e-13, "gtol": 1e-13}


def fit(rows: pd.DataFrame) -> Fit:
    """Every coefficient, each part from its own column; mixed iterations are never fitted."""
    return fit_encoder(rows) | fit_language_model(rows)


def fit_encoder(rows: pd.DataFrame) -> Fit:
    encoder = rows[rows.stage == "encoder"]
    return _linear(("E0", "E1", "E2"), encoder_terms(encoder), encoder.total_ms, encoder)


def fit_language_model(rows: pd.DataFrame, near: Fit | None = None) -> Fit:
    """The search for gemm's begins at the ones of a fit that is `near`, if there is one."""
    prefill, decode = rows[rows.stage == "prefill"], rows[rows.stage == "decode"]
    return (
        _fit_gemm(pd.concat([prefill, decode]), near)
        | _linear(("P0", "P1", "P2"), prefill_terms(prefill), prefill.prefill_attention_ms, prefill)
        | _linear(("D0", "D1", "D2"), decode_terms(decode), decode.decode_attention_ms, decode)
    )


def predict(c: Fit, rows: pd.DataFrame, tables: Tables = NO_TABLES) -> Floats:
    """Milliseconds of each row, whatever its stage."""
    encode = np.where(rows.images > 0, encoder_ms(c, rows, tables), 0.0)
    gemm = np.where(num_tokens(rows) > 0, gemm_ms(c, rows, tables), 0.0)
    prefill = np.where(rows.chunk > 0, prefill_terms(rows) @ [c["P0"], c["P1"], c["P2"]], 0.0)
    decode = np.where(rows.decodes > 0, decode_terms(rows) @ [c["D0"], c["D1"], c["D2"]], 0.0)
    return np.asarray(encode + gemm + prefill + decode)


def encoder_ms(c: Fit, rows: pd.DataFrame, tables: Tables = NO_TABLES) -> Floats:
    formula = np.array([c["E0"], c["E1"], c["E2"]])
    if tables.encode is None:
        return np.asarray(encoder_terms(rows) @ formula)

    def ms(images: float, size: float) -> float:
        return float(formula @ [1, images * size, images * size**2])

    shapes = zip(rows.images.clip(lower=1).tolist(), rows.tokens.clip(lower=1).tolist(), strict=True)
    return np.array([tables.encode.at(images, size, ms) for images, size in shapes])


def gemm_ms(c: Fit, rows: pd.DataFrame, tables: Tables = NO_TABLES) -> Floats:
    formula, tokens = np.array([c[name] for name in GEMM]), num_tokens(rows)
    if tables.gemm is None:
        return gemm(formula, tokens)
    return np.array([tables.gemm.at(t, lambda x: float(gemm(formula, np.array(x)))) for t in tokens.tolist()])


def bias(rows: pd.DataFrame, predicted: Floats) -> Fit:
    """Per stage, by how many percent the summed predictions miss the summed timings."""
    sums = rows.assign(predicted=predicted).groupby("stage")[["predicted", "total_ms"]].sum()
    return {str(stage): float(100 * (row.predicted / row.total_ms - 1)) for stage, row in sums.iterrows()}


def _linear(names: Sequence[str], terms: Floats, measured: pd.Series[float], rows: pd.DataFrame) -> Fit:
    weight = weights(rows)
    target = measured.to_numpy() * weight
    sure = SUMS * float(np.linalg.norm(target))
    weighted = np.concatenate([terms * weight[:, None], [sure * terms.sum(axis=0) / measured.sum()]])
    scale = np.linalg.norm(weighted, axis=0)  # columns differ by ten orders of magnitude
    scale[scale == 0] = 1.0
    solution, _ = nnls(weighted / scale, np.append(target, sure))
    return dict(zip(names, (solution / scale).tolist(), strict=True))


def _fit_gemm(rows: pd.DataFrame, near: Fit | None) -> Fit:
    tokens, measured, weight = num_tokens(rows), rows.gemm_ms.to_numpy(), weights(rows)
    sure = SUMS * float(np.linalg.norm(measured * weight))
    stages = [(rows.stage == stage).to_numpy() for stage in rows.stage.unique()]

    def residuals(c: Floats) -> Floats:
        predicted = gemm(c, tokens)
        sums = [sure * (predicted[stage].sum() / measured[stage].sum() - 1) for stage in stages]
        return np.append((predicted - measured) * weight, sums)

    per_token = measured.max() / tokens.max()
    start = np.array([measured.min(), per_token, SLOPE * per_token, POWER])
    if near:
        start = np.clip([near[name] for name in GEMM], 1e-12, GEMM_BOUNDS[1])
    found = least_squares(residuals, start, bounds=GEMM_BOUNDS, x_scale=np.maximum(start, 1e-6), **TIGHT)
    return dict(zip(GEMM, found.x.tolist(), strict=True))


def gemm(c: Floats, tokens: Floats) -> Floats:
    """Milliseconds by G0, G1, G2 and p; the greater is factored out, since (G1 * T)**p would overflow."""
    floor, token, slope, power = c
    high = np.maximum(floor, token * tokens)
    low = np.minimum(floor, token * tokens)
    share = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    return np.asarray(high * (1 + share**power) ** (1 / power) + slope * tokens)


def num_tokens(rows: pd.DataFrame) -> Floats:
    return (rows.chunk + rows.decodes).to_numpy(float)


def weights(rows: pd.DataFrame) -> Floats:
    return rows.total_ms.to_numpy() ** -WEIGHT


def encoder_terms(rows: pd.DataFrame) -> Floats:
    return np.column_stack([np.ones(len(rows)), rows.images * rows.tokens, rows.images * rows.tokens**2])


def prefill_terms(rows: pd.DataFrame) -> Floats:
    """A query attends to cached + chunk / 2 tokens on average, or to half the prompt where there is one.

    Published mixed rows have a prompt, in which the chunk lies anywhere, and nothing cached: they take their part of
    the whole prompt's attention, and so of what is fixed in it. So have rows of a calibration whose chunk stands for
    several, all of them in one call; of a single chunk they say what was cached.
    """
    anywhere = (rows.prompt > 0) & (rows.cached == 0)
    middle = np.where(anywhere, rows.prompt / 2, rows.cached + rows.chunk / 2)
    published = anywhere & (rows.stage == "mixed") & has_parts(rows)
    part = np.where(published, 1 / np.ceil(rows.prompt / rows.chunk.clip(lower=1)), 1.0)
    return np.column_stack([part, rows.chunk, rows.chunk * middle])


def decode_terms(rows: pd.DataFrame) -> Floats:
    return np.column_stack([np.ones(len(rows)), rows.decodes, rows.decodes * rows.context])
