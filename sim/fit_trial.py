"""Formula and tables tried on timings that were withheld from them, so that each part can be given its better form."""

from __future__ import annotations

import pandas as pd

from sim import regression, totals
from sim.cost_tables import GemmTable, Tables
from sim.fit_tables import encode_table, gemm_table
from sim.regression import Fit, predict
from sim.timings import has_parts
from sim.withheld import Predictions, withhold
from workloads.frozen import LEAST

FORMULA, TABLE = "formula", "table"
DIGITS = 6  # significant; far below the errors, and the same on every machine
SMALL_ENCODER_BATCH = 1024  # tokens; below, launch gaps rule, which are no matter of the formula


class Trial:
    """Both forms, fitted to all rows and to those that are left when some are withheld."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.parts = has_parts(rows)
        self.form = regression if self.parts else totals
        self.encoder, self.mixed = (rows[rows.stage == stage] for stage in ("encoder", "mixed"))
        self.language = rows[rows.stage.isin(["prefill", "decode"]) | (rows.stage == "mixed") & (not self.parts)]
        found = self.form.fit_encoder(self.encoder) | self.form.fit_language_model(self.language)
        self.coefficients: Fit = {name: _rounded(value) for name, value in found.items()}
        self.tables = Tables(encode=encode_table(self.encoder, self.coefficients), gemm=self._gemm(self.language))

    def tested(self) -> pd.DataFrame:
        """Rows as they were withheld, with what each form predicted."""
        return pd.concat(self._tested_parts() if self.parts else self._tested_totals())

    def _tested_parts(self) -> list[pd.DataFrame]:
        """Each image size withheld; each token count, then each context; mixed rows, which never are fitted."""
        encoder = withhold(self.encoder, {"size": self.encoder.tokens}, self._encoder)
        kinds = {"size": _sizes(self.language), "context": self.language.cached + self.language.context}
        never = self.mixed.assign(kind="size", value=_sizes(self.mixed))
        return [
            encoder[encoder.images * encoder.tokens >= SMALL_ENCODER_BATCH],
            withhold(self.language, kinds, self._model),
            never.assign(**self._both(self.coefficients, self.tables, self.mixed)),
        ]

    def _tested_totals(self) -> list[pd.DataFrame]:
        """Each token count withheld; there are few."""
        batches = {"size": self.encoder.images * self.encoder.tokens}
        return [
            withhold(self.encoder, batches, self._encoder),
            withhold(self.language, {"size": _sizes(self.language)}, self._model),
        ]

    def _encoder(self, rest: pd.DataFrame, part: pd.DataFrame) -> Predictions:
        c = self.form.fit_encoder(rest)
        return self._both(c, Tables(encode=encode_table(rest, c)), part)

    def _model(self, rest: pd.DataFrame, part: pd.DataFrame) -> Predictions:
        c = self.form.fit_language_model(rest, self.coefficients)
        return self._both(c, Tables(gemm=self._gemm(rest)), part)

    def _gemm(self, rows: pd.DataFrame) -> GemmTable | None:
        """Whole times do not tell of it."""
        return gemm_table(rows) if self.parts else None

    def _both(self, c: Fit, tables: Tables, part: pd.DataFrame) -> Predictions:
        c = self.coefficients | c
        return {FORMULA: predict(c, part), TABLE: predict(c, part, tables)}


def _sizes(rows: pd.DataFrame) -> pd.Series[int]:
    sizes: pd.Series[int] = rows.chunk + rows.decodes
    return sizes


def _rounded(value: float) -> float:
    """What a solver leaves on a bound, or too little for a profile to hold, is zero."""
    return 0.0 if value < LEAST else float(f"{value:.{DIGITS}g}")
