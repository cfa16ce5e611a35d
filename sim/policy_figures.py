"""All policies on the scenario suite in scenarios/policies: their figures as tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from policies.policy import Policy
from sim.policy_text import kind_of
from sim.result import Run
from sim.run import run
from sim.sheet import markdown

BASELINE = "footprint"  # what changes are against: it never stalls, and serves in order of arrival
COLUMNS = {
    "TTFT p50 (ms)": "median_ttft_ms",
    "TTFT p99 (ms)": "p99_ttft_ms",
    "ITL p99 (ms)": "p99_itl_ms",
    "E2E p99 (ms)": "p99_e2el_ms",
    "throughput (1/s)": "request_throughput",
}
Runs = Mapping[str, Mapping[str, Run]]  # of a scenario's name, of a policy's kind


def suite(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def about(scenario: Path) -> str:
    """What the scenario's opening comment says it is, up to what to look at."""
    lines = [line.removeprefix("#").strip() for line in scenario.read_text().splitlines()]
    end = next(index for index, line in enumerate(lines) if line.startswith("Look at:"))
    return " ".join(lines[:end])


def run_suite(scenarios: Sequence[Path], policies: Sequence[type[Policy]]) -> Runs:
    """Every policy with its defaults on every scenario."""
    kinds = [kind_of(policy) for policy in policies]
    return {path.stem: {kind: run(path, {"policy.kind": kind}) for kind in kinds} for path in scenarios}


def overview(runs: Runs) -> str:
    """TTFT at the median and the 99th percentile, a row a policy."""
    kinds = list(next(iter(runs.values())))
    rows = [
        [
            f"[`{kind}`](#{kind})",
            *(_ttft(of_scenario[kind]) + _unfinished(of_scenario[kind]) for of_scenario in runs.values()),
        ]
        for kind in kinds
    ]
    return markdown(["TTFT p50 / p99 (ms)", *(f"`{name}`" for name in runs)], rows)


def figures(runs: Runs, kind: str) -> str:
    """A policy's figures, a row a scenario, with their changes against the baseline."""
    rows = [
        [f"`{name}`{_unfinished(of_scenario[kind])}", *(_cell(of_scenario, kind, key) for key in COLUMNS.values())]
        for name, of_scenario in runs.items()
    ]
    return markdown(["scenario", *COLUMNS], rows)


def _ttft(of: Run) -> str:
    return f"{_number(of.summary['median_ttft_ms'])} / {_number(of.summary['p99_ttft_ms'])}"


def _cell(of_scenario: Mapping[str, Run], kind: str, key: str) -> str:
    value, base = of_scenario[kind].summary[key], of_scenario[BASELINE].summary[key]
    if value is None or not base or kind == BASELINE:
        return _number(value)
    change = round(100 * (value / base - 1))
    return f"{_number(value)} ({change:+d} %)" if change else _number(value)


def _number(value: float | None) -> str:
    """Three figures at least, as far as there is anything behind the point."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _unfinished(of: Run) -> str:
    finished, sent = int(of.summary["completed"] or 0), len(of.requests)
    return "" if finished == sent else f", {of.verdict}: {finished} of {sent} finished"
