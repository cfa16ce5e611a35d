"""What `tandem run` prints: the figures of all variants side by side, and whom the server turned away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from policies.policy import Policy
from sim.result import Run

Runs = Sequence[tuple[str, Run]]
WIDE = 1000  # columns
MAX_REASONS = 5
MAX_BLOCKERS = 8


class Row(NamedTuple):
    """A line of the table: a figure of `summary.json`."""

    title: str
    key: str
    format: str = "{:,.1f}"
    scale: float = 1.0
    always: bool = True  # else only where some variant's is above 0


ROWS = (
    Row("completed", "completed", "{:,}"),
    *(Row(name, name, "{:,}", always=False) for name in ("rejected", "failed", "cancelled", "stalled", "unfinished")),
    Row("request throughput (1/s)", "request_throughput", "{:,.2f}"),
    Row("output throughput (tokens/s)", "output_throughput", "{:,.0f}"),
    Row("TTFT p50 (ms)", "p50_ttft_ms"),
    Row("TTFT p99 (ms)", "p99_ttft_ms"),
    Row("ITL mean (ms)", "mean_itl_ms", "{:,.2f}"),
    Row("ITL p99 (ms)", "p99_itl_ms", "{:,.2f}"),
    Row("TPOT mean (ms)", "mean_tpot_ms", "{:,.2f}"),
    Row("E2E p50 (ms)", "p50_e2el_ms", "{:,.0f}"),
    Row("E2E p99 (ms)", "p99_e2el_ms", "{:,.0f}"),
    Row("encoder busy (%)", "encoder_busy_fraction", scale=100, always=False),
    Row("encoder-cache hits", "encoder_cache_hits", "{:,}", always=False),
    Row("preemptions", "num_preemptions", "{:,}", always=False),
    Row("allocation failures", "allocation_failures", "{:,}", always=False),
)
GOODPUT = (
    Row("goodput (1/s)", "request_goodput", "{:,.2f}"),
    Row("within all SLOs (%)", "slo_attainment", scale=100),
)


def print_table(console: Console, runs: Runs) -> None:
    """Variants as columns, as many beside each other as the terminal is wide."""
    with_slos = any(run.slo.per_request for _, run in runs)
    rows = [row for row in (*ROWS, *(GOODPUT if with_slos else ())) if _is_shown(row, runs)]
    for part in _parts(console, lambda some: _table(rows, some, runs), runs):
        console.print(part)
    labels = sorted({f"{run.scenario.profile}, {run.profile.label}" for _, run in runs})
    say(console, f"simulated with the costs of {'; '.join(labels)}")


def new_console() -> Console:
    """On stdout; where nobody looks, lines are as long as they need to be."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def say(console: Console, text: str) -> None:
    """A line as it is, however long."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _is_shown(row: Row, runs: Runs) -> bool:
    return row.always or any(run.summary.get(row.key) for _, run in runs)


def _table(rows: Sequence[Row], some: Runs, runs: Runs) -> Table:
    table = Table(title="simulated", title_justify="left")
    table.add_column("")
    for label, _ in some:
        table.add_column(label, justify="right", no_wrap=True)
    if any(run.scenario.policy.kind not in label.split() for label, run in runs):
        table.add_row("policy", *(run.scenario.policy.kind for _, run in some))
    if any(run.verdict != "finished" for _, run in runs):
        table.add_row("run", *(run.verdict for _, run in some))
    for row in rows:
        table.add_row(row.title, *(_cell(row, run.summary.get(row.key)) for _, run in some))
    alike = identical(runs)
    if alike:
        table.add_row("identical decisions", *(f"with {alike[label]}" if label in alike else "" for label, _ in some))
    return table


def _cell(row: Row, figure: Any) -> str:
    return "-" if figure is None else row.format.format(figure * row.scale if row.scale != 1 else figure)


def identical(runs: Runs) -> dict[str, str]:
    """Each variant whose plans never differed from those of one further left, and the first such one."""
    first: dict[int, str] = {}
    alike = {}
    for label, run in runs:
        if first.setdefault(run.decisions, label) != label:
            alike[label] = first[run.decisions]
    return alike


def _parts(console: Console, table: Callable[[Runs], Table], runs: Runs) -> Iterator[Table]:
    """As many variants as fit, at least one; then the next."""
    start = 0
    while start < len(runs):
        end = len(runs)
        while end > start + 1 and _width(console, table(runs[start:end])) > console.width:
            end -= 1
        yield table(runs[start:end])
        start = end


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def turned_away(run: Run) -> list[str]:
    """Why requests were rejected or failed: alike reasons counted together, with one of them as an example."""
    lost = run.requests[run.requests["status"].isin(["rejected", "failed"])]
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for request, status, reason in zip(lost["request_id"], lost["status"], lost["reason"], strict=True):
        groups.setdefault((status, re.sub(r"\d+", "#", reason)), []).append((request, reason))
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [f"{len(those)} {status}: request {those[0][0]} {those[0][1]}" for (status, _), those in largest]
    return _at_most(lines, MAX_REASONS, "other reasons")


def waiting(run: Run) -> list[str]:
    """Who waits for what in a run that stalled."""
    lines = [f"stalled: request {request} {reason}" for request, reason in run.blockers.items()]
    return _at_most(lines, MAX_BLOCKERS, "more that wait")


def _at_most(lines: list[str], limit: int, rest: str) -> list[str]:
    return lines if len(lines) <= limit else [*lines[:limit], f"and {len(lines) - limit} {rest}, see requests.parquet"]


def policy_table(policies: Sequence[type[Policy]]) -> Table:
    """Every policy in one line, and where its rule comes from."""
    table = Table()
    for heading in ("kind", "what it does", "source"):
        table.add_column(heading, overflow="fold")
    for policy in policies:
        summary = (policy.__doc__ or "").strip().splitlines()[0]
        table.add_row(policy.model_fields["kind"].default, summary, policy.source)
    return table
