"""The fidelity table of a live run: stage by stage and figure by figure, for a terminal and for a page in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.compare import Comparison
from sim.compare_forced import Forced
from sim.compare_free import Free
from sim.published_table import number
from sim.sheet import Sheet, in_page

UNITS = {
    "output_throughput": "output tokens/s",
    "request_throughput": "requests/s",
    "request_goodput": "good requests/s",
    "slo_attainment": "share within SLOs",
}
NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2el": "E2E"}


def stages(forced: Forced, clock: str) -> Sheet:
    """Means of iterations, priced by the cost model on the live plans."""
    headings = ["stage", "iterations", f"measured ({clock}, ms)", "simulated (ms)", "error (ms)", "error (%)"]
    rows = []
    for name, stage in forced.stages.items():
        errors = stage.errors()
        measured, predicted = errors.measured_ms, errors.predicted_ms
        numbers = [f"{measured:,.3f}", f"{predicted:,.3f}", f"{predicted - measured:+,.3f}"]
        rows.append([name, f"{errors.iterations:,}", *numbers, signed(errors.error_percent)])
    return Sheet("stage by stage, on the live plans", headings, rows)


def figures(free: Free) -> Sheet:
    """Of the whole run, simulated on its own."""
    headings = ["figure", "simulated", "measured", "error", "error (%)", "95 %, requests redrawn"]
    rows = []
    for name, figure in free.figures.items():
        numbers = ["-" if value is None else number(value) for value in (figure.simulated, figure.measured)]
        error = "-" if figure.error is None else f"{figure.error:+,.4g}"
        low_high = figure.interval_percent
        interval = "-" if low_high is None else f"{low_high[0]:+.1f} to {low_high[1]:+.1f}"
        rows.append([title(name), *numbers, error, signed(figure.error_percent), interval])
    return Sheet("the whole run", headings, rows)


def taus(ranks: Mapping[str, float | None], labels: Sequence[str]) -> Sheet:
    """Whether simulation and live run put the variants into the same order."""
    rows = [[title(name), "-" if tau is None else f"{tau:+.2f}"] for name, tau in ranks.items()]
    return Sheet(f"ranks of {', '.join(labels)}, simulated against measured", ["figure", "Kendall's tau"], rows)


def fidelity_page(comparisons: Sequence[Comparison], ranks: Mapping[str, float | None]) -> str:
    """All live runs of a command that were told the time by a clock; of the cost model's there is nothing to say."""
    parts = ["# Fidelity"]
    for comparison in comparisons:
        if comparison.exact is None:
            about = f"{comparison.live.about['name']}{f', {comparison.label}' if comparison.label else ''}"
            source = f"{comparison.profile_name}, {comparison.profile.label}"
            parts += [f"## {about}", f"Twin: {comparison.twin_check}. Simulated with {source}."]
            parts += [in_page(stages(comparison.forced, comparison.live.clock)), in_page(figures(comparison.free))]
    if ranks:
        parts += ["## Ranks", in_page(taus(ranks, [comparison.label for comparison in comparisons]))]
    return "\n\n".join(parts) + "\n"


def title(name: str) -> str:
    """`p99_ttft_ms` as `TTFT p99 (ms)`."""
    if name in UNITS:
        return UNITS[name]
    statistic, latency, _ = name.split("_")
    return f"{NAMES[latency]} {statistic} (ms)"


def signed(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:+.2f}"
