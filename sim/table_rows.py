"""The lines of the result table: which figures of a run's summary are shown, and under what names."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sim.result import Run

Runs = Sequence[tuple[str, Run]]
Cells = tuple[str, list[str]]  # a line of the table: its title, and a cell for each run


COUNT = "{:,}"


class Row(NamedTuple):
    """A line of the table: a figure of `summary.json`."""

    title: str
    key: str
    format: str = "{:,.1f}"
    scale: float = 1.0
    always: bool = True  # else only where some variant's is above 0

    def written(self, figure: float) -> str:
        """A count that is a mean has a digit behind the point."""
        if isinstance(figure, float) and self.format == COUNT:
            return f"{figure:,.1f}".removesuffix(".0")
        return self.format.format(figure * self.scale if self.scale != 1 else figure)


ROWS = (
    Row("completed", "completed", COUNT),
    *(Row(name, name, COUNT, always=False) for name in ("rejected", "failed", "cancelled", "stalled", "unfinished")),
    Row("requests/s", "request_throughput", "{:,.2f}"),
    Row("output tokens/s", "output_throughput", "{:,.0f}"),
    Row("TTFT p50 (ms)", "p50_ttft_ms"),
    Row("TTFT p99 (ms)", "p99_ttft_ms"),
    Row("ITL mean (ms)", "mean_itl_ms", "{:,.2f}"),
    Row("ITL p99 (ms)", "p99_itl_ms", "{:,.2f}"),
    Row("TPOT mean (ms)", "mean_tpot_ms", "{:,.2f}"),
    Row("E2E p50 (ms)", "p50_e2el_ms", "{:,.0f}"),
    Row("E2E p99 (ms)", "p99_e2el_ms", "{:,.0f}"),
    Row("encoder busy (%)", "encoder_busy_fraction", scale=100, always=False),
    Row("encoder-cache hits", "encoder_cache_hits", COUNT, always=False),
    Row("link busy (%)", "link_busy_fraction", scale=100, always=False),
    Row("preemptions", "num_preemptions", COUNT, always=False),
    Row("allocation failures", "allocation_failures", COUNT, always=False),
)
PEAKS = (  # what was used at most, and the limit that it stands against
    ("KV blocks used", "max_kv_blocks_used", "num_kv_blocks"),
    ("encoder rows held", "max_encoder_rows_held", "encoder_cache_rows"),
)
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2E"}


def rows(runs: Runs) -> list[Cells]:
    """The heading first; titles and cells may have several lines."""
    heading = (runs[0][1].origin, [_folded(label) for label, _ in runs])
    figures = [(row.title, [_cell(row, run) for _, run in runs]) for row in _shown(runs)]
    return [heading, *_heads(runs), *figures, *_peaks(runs), *_alike(runs)]


def _shown(runs: Runs) -> list[Row]:
    rows = (*ROWS, *_goodput(runs))
    return [row for row in rows if row.always or any(run.summary.get(row.key) for _, run in runs)]


def _goodput(runs: Runs) -> list[Row]:
    """Named after the objectives that count: a gap's is none of them."""
    bounds = [name for name in NAMES if any(name in run.slo.per_request for _, run in runs)]
    words = f"within {', '.join(NAMES[name] for name in bounds)}"
    within = textwrap.fill(f"{words} SLO{'s' * (len(bounds) > 1)} (%)", 19)
    rows = [Row("good requests/s", "request_goodput", "{:,.2f}"), Row(within, "slo_attainment", scale=100)]
    return rows if bounds else []


def _heads(runs: Runs) -> Iterator[Cells]:
    """What each run is, where its label does not tell, and how it ended, where not well."""
    if any(run.scenario.policy.kind not in label.split() for label, run in runs):
        yield "policy", [run.scenario.policy.kind for _, run in runs]
    if any(run.verdict != "finished" for _, run in runs):
        yield "run", [run.verdict for _, run in runs]


def _peaks(runs: Runs) -> Iterator[Cells]:
    """The most that was used, of how much: said once where it is the same for all."""
    for title, key, limit in PEAKS:
        used = [run.summary.get(key) for _, run in runs]
        if any(used):
            cells = ["-" if most is None else f"{most:,.0f}" for most in used]
            totals = [_total(getattr(run.limits, limit)) for _, run in runs]
            alike = len(set(totals)) == 1
            beside = [f"{cell}\n{total}" for cell, total in zip(cells, totals, strict=True)]
            yield f"{title},\n{totals[0]}" if alike else f"{title},\nof", cells if alike else beside


def _total(limit: int | str) -> str:
    return f"of {limit:,}" if isinstance(limit, int) else limit


def _alike(runs: Runs) -> Iterator[Cells]:
    if alike := identical(runs):
        yield "same decisions as", [_folded(alike.get(label, "")) for label, _ in runs]


def _folded(label: str) -> str:
    """A line for each of its words; a space inside brackets separates none."""
    return re.sub(r" (?![^{\[]*[}\]])", "\n", label)


def _cell(row: Row, run: Run) -> str:
    """With its interval where it is a mean that scatters."""
    if run.ensemble is not None:
        return run.ensemble.written(row.key, row.written)
    figure = run.summary.get(row.key)
    return "-" if figure is None else row.written(figure)


def identical(runs: Runs) -> dict[str, str]:
    """Each variant whose plans never differed from those of one further left, and the first such one."""
    first: dict[int, str] = {}
    alike = {}
    for label, run in runs:
        if first.setdefault(run.decisions, label) != label:
            alike[label] = first[run.decisions]
    return alike
