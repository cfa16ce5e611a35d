"""Least squares of the cost model's formula on a table of timings, and its errors on timings withheld.

Rows are those of a profile's CSV (`sim.fit`); coefficients are in milliseconds and never negative.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from sim.withheld import Predict, withhold

Floats = NDArray[np.float64]
Fit = dict[str, float]

# Residuals are divided by total_ms ** 0.8, which is nearly relative. Fully relative (1.0) left the summed prefill time
# of Qwen3-VL-8B 2.2 % low for no smaller relative error; at 0.5 the small iterations suffer.
WEIGHT = 0.8
SMALL_ENCODER_BATCH = 1024  # tokens; below, launch gaps rule, which are no matter of the formula
GEMM = ("G0", "G1", "G2", "p")
GEMM_START = np.array([4.5, 0.02, 0.001, 2.0])  # ms, ms per token, ms per token, 1
GEMM_BOUNDS = (np.array([0.0, 0.0, 0.0, 1.0]), np.array([1e3, 1.0, 1.0, 64.0]))


def fit(rows: pd.DataFrame) -> Fit:
    """Every coefficient, each stage from its own column; mixed iterations are left for `tested`."""
    return fit_encoder(rows) | fit_language_model(rows)


def fit_encoder(rows: pd.DataFrame) -> Fit:
    encoder = rows[rows.stage == "encoder"]
    return _linear(("E0", "E1", "E2"), encoder_terms(encoder), encoder.total_ms, encoder)


def fit_language_model(rows: pd.DataFrame) -> Fit:
    prefill, decode = rows[rows.stage == "prefill"], rows[rows.stage == "decode"]
    return (
        _fit_gemm(pd.concat([prefill, decode]))
        | _linear(("P0", "P1", "P2"), prefill_terms(prefill), prefill.prefill_attention_ms, prefill)
        | _linear(("D0", "D1", "D2"), decode_terms(decode), decode.decode_attention_ms, decode)
    )


def predict(c: Fit, rows: pd.DataFrame) -> Floats:
    """Milliseconds of each row, whatever its stage."""
    encode = np.where(rows.images > 0, encoder_terms(rows) @ [c["E0"], c["E1"], c["E2"]], 0.0)
    tokens = num_tokens(rows)
    gemm = np.where(tokens > 0, _gemm(np.array([c[name] for name in GEMM]), tokens), 0.0)
    prefill = np.where(rows.chunk > 0, prefill_terms(rows) @ [c["P0"], c["P1"], c["P2"]], 0.0)
    decode = np.where(rows.decodes > 0, decode_terms(rows) @ [c["D0"], c["D1"], c["D2"]], 0.0)
    return np.asarray(encode + gemm + prefill + decode)


def tested(rows: pd.DataFrame, fitted: Fit) -> pd.DataFrame:
    """What fits predict that have not seen a row's image size, or its token count, or its context (`sim.withheld`).

    Mixed rows are never fitted; their groups are token counts.
    """
    encoder, mixed = rows[rows.stage == "encoder"], rows[rows.stage == "mixed"]
    encoder = withhold(encoder, {"size": encoder.tokens}, _predictor(fit_encoder, fitted))
    encoder = encoder[encoder.images * encoder.tokens >= SMALL_ENCODER_BATCH]
    language = rows[rows.stage.isin(["prefill", "decode"])]
    kinds = {"size": language.chunk + language.decodes, "context": language.cached + language.context}
    language = withhold(language, kinds, _predictor(fit_language_model, fitted))
    mixed = mixed.assign(kind="size", value=mixed.chunk + mixed.decodes, predicted=predict(fitted, mixed))
    return pd.concat([encoder, language, mixed])


def _predictor(refit: Callable[[pd.DataFrame], Fit], fitted: Fit) -> Predict:
    return lambda rest, part: predict(fitted | refit(rest), part)


def bias(rows: pd.DataFrame, fitted: Fit) -> Fit:
    """Per stage, by how many percent the summed predictions miss the summed timings."""
    sums = rows.assign(predicted=predict(fitted, rows)).groupby("stage")[["predicted", "total_ms"]].sum()
    return {str(stage): float(100 * (row.predicted / row.total_ms - 1)) for stage, row in sums.iterrows()}


def _linear(names: tuple[str, ...], terms: Floats, measured: pd.Series, rows: pd.DataFrame) -> Fit:
    weight = weights(rows)
    weighted = terms * weight[:, None]
    scale = np.linalg.norm(weighted, axis=0)  # columns differ by ten orders of magnitude
    solution, _ = nnls(weighted / scale, measured.to_numpy() * weight)
    return dict(zip(names, (solution / scale).tolist(), strict=True))


def _fit_gemm(rows: pd.DataFrame) -> Fit:
    tokens, measured, weight = num_tokens(rows), rows.gemm_ms.to_numpy(), weights(rows)

    def residuals(c: Floats) -> Floats:
        return np.asarray((_gemm(c, tokens) - measured) * weight)

    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    found = least_squares(residuals, GEMM_START, bounds=GEMM_BOUNDS, x_scale=GEMM_START, **tight)
    return dict(zip(GEMM, found.x.tolist(), strict=True))


def _gemm(c: Floats, tokens: Floats) -> Floats:
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

    Published mixed rows have a prompt, in which the chunk lies anywhere, and nothing cached. So have rows of a
    calibration whose chunk stands for several; of a single chunk they say what was cached.
    """
    anywhere = (rows.prompt > 0) & (rows.cached == 0)
    middle = np.where(anywhere, rows.prompt / 2, rows.cached + rows.chunk / 2)
    return np.column_stack([np.ones(len(rows)), rows.chunk, rows.chunk * middle])


def decode_terms(rows: pd.DataFrame) -> Floats:
    return np.column_stack([np.ones(len(rows)), rows.decodes, rows.decodes * rows.context])
