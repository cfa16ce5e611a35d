"""Least squares of the cost model's formula on the times of whole iterations, as a calibration measures them.

Nobody sees gemm and attention apart then, so what cannot be told apart is settled beforehand: P1 is 0, since a chunk's
cost per token is gemm's as well, and a tiny ridge decides between G1, G2 and D1 where the timings do not. Sums are
fitted before rows are: the summed prediction of every stage is its summed time, as far as coefficients that are not
negative allow, and exactly so for the encoder and for the language model as a whole.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from sim.regression import Fit, decode_terms, encoder_terms, num_tokens, predict, prefill_terms, weights

Floats = NDArray[np.float64]

LANGUAGE = ("G1", "G2", "P0", "P2", "D0", "D1", "D2")  # linear once the knee, G0 / G1 in tokens, and p are given
KNEES = np.geomspace(0.5, 2**14, 13)
POWERS = (1.0, 1.5, 2.5, 5.0, 12.0)
LEAST_KNEE, MOST_KNEE, MOST_POWER = 2.0**-4, 2.0**17, 64.0
RIDGE = 1e-6  # of columns of length 1: far too little to move what the timings tell
SUMS = 100.0  # how much a stage's sum weighs against all rows together


def fit(rows: pd.DataFrame) -> Fit:
    """Every coefficient, from `total_ms` alone."""
    return fit_encoder(rows) | fit_language_model(rows)


def fit_encoder(rows: pd.DataFrame) -> Fit:
    encoder = rows[rows.stage == "encoder"]
    found, _ = _solve(encoder_terms(encoder), encoder)
    return _unbiased(dict(zip(("E0", "E1", "E2"), found.tolist(), strict=True)), encoder)


def fit_language_model(rows: pd.DataFrame, near: Fit | None = None) -> Fit:
    """Prefill, decode and mixed rows together: knee and power searched for, the rest solved for each.

    The search begins everywhere, or at the ones of a fit that is `near`.
    """
    language = rows[rows.stage != "encoder"]

    def error(place: Floats) -> float:
        return _solve(_terms(language, *_bend(place)), language)[1]

    best = min(_starts() if near is None else [_place(near)], key=error)
    options = {"maxiter": 100 if near is None else 30, "xatol": 1e-3, "fatol": 1e-9}
    found = minimize(error, best, method="Nelder-Mead", options=options).x
    knee, power = _bend(min([best, found], key=error))
    solution, _ = _solve(_terms(language, knee, power), language)
    linear = dict(zip(LANGUAGE, solution.tolist(), strict=True))
    return _unbiased({**linear, "G0": knee * linear["G1"], "P1": 0.0, "p": power}, language)


def _starts() -> list[Floats]:
    return [np.log2([knee, power]) for knee in KNEES for power in POWERS]


def _place(fitted: Fit) -> Floats:
    knee = fitted["G0"] / fitted["G1"] if fitted["G1"] > 0 else MOST_KNEE
    return np.log2([np.clip(knee, LEAST_KNEE, MOST_KNEE), fitted["p"]])


def _bend(place: Floats) -> tuple[float, float]:
    """(knee in tokens, power) of a place in the search, kept within bounds."""
    knee, power = np.exp2(np.clip(place, np.log2([LEAST_KNEE, 1.0]), np.log2([MOST_KNEE, MOST_POWER]))).tolist()
    return knee, power


def _terms(rows: pd.DataFrame, knee: float, power: float) -> Floats:
    """A column for each of LANGUAGE."""
    tokens = num_tokens(rows)
    high, low = np.maximum(knee, tokens), np.minimum(knee, tokens)
    gemm = high * (1 + (low / high) ** power) ** (1 / power)
    prefill = prefill_terms(rows)[:, [0, 2]] * (rows.chunk > 0).to_numpy()[:, None]
    decode = decode_terms(rows) * (rows.decodes > 0).to_numpy()[:, None]
    return np.column_stack([gemm, tokens, prefill, decode])


@np.errstate(all="ignore")  # what overflows is refused with the coefficients
def _solve(terms: Floats, rows: pd.DataFrame) -> tuple[Floats, float]:
    """Coefficients that are not negative, and how far off they leave it: rows, sums of stages, ridge."""
    measured, weight = rows.total_ms.to_numpy(), weights(rows)
    target = measured * weight
    length = float(np.linalg.norm(target))
    stages = [(rows.stage == stage).to_numpy() for stage in rows.stage.unique()]
    sums = np.array([terms[stage].sum(axis=0) / measured[stage].sum() for stage in stages]) * SUMS * length
    weighted = np.concatenate([terms * weight[:, None], sums])
    scale = np.linalg.norm(weighted, axis=0)  # columns differ by ten orders of magnitude
    scale[scale == 0] = 1.0  # nothing of the kind was measured
    system = np.concatenate([weighted / scale, RIDGE * np.eye(terms.shape[1])])
    wanted = np.concatenate([target, np.full(len(stages), SUMS * length), np.zeros(terms.shape[1])])
    solution, error = nnls(system, wanted)
    return solution / scale, float(error)


def _unbiased(fitted: Fit, rows: pd.DataFrame) -> Fit:
    """Scaled so that all rows together take what they took; p is no time."""
    absent = dict.fromkeys(("E0", "E1", "E2", *LANGUAGE, "G0", "P1"), 0.0) | {"p": 1.0}
    factor = float(rows.total_ms.sum() / predict(absent | fitted, rows).sum())
    return {name: value if name == "p" else value * factor for name, value in fitted.items()}
