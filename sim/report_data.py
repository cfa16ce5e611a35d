"""What a report's page is told of its runs: figures as JSON, and columns in it as packed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.latencies import latencies
from sim.metrics import TTFT_PARTS
from sim.plot_curves import steps
from sim.plot_latencies import TITLES
from sim.plot_style import STAGES
from sim.published_table import as_published, simulated, whose
from sim.report_late import late_tokens, within
from sim.report_pack import Packed, micros, packed
from sim.report_rows import by_engine, heads, numbered_members, packed_members, packed_rows
from sim.report_runs import NO_TOKENS, ReportedRun
from sim.table_rows import rows

Content = dict[str, Any]

MOMENTS = ("prepared", "admitted", "first_token", "finish")
COUNTS = ("prompt_tokens", "output_tokens", "num_items", "encoder_tokens", "num_encodes", "num_preemptions")
LIMITS = (
    *("max_num_batched_tokens", "max_num_seqs", "num_kv_blocks"),
    *("encoder_max_num_tokens", "encoder_cache_rows", "encoder_budget_unit"),
)


def content(runs: Sequence[ReportedRun]) -> Content:
    """All of the page's data."""
    labelled = [(run.label, run) for run in runs]
    return {
        "title": ", ".join(dict.fromkeys(run.name for run in runs)),
        "latencies": TITLES,
        "parts": {part: STAGES[part][0] for part in TTFT_PARTS},
        "table": [[title.replace("\n", " "), [_flat(cell) for cell in cells]] for title, cells in rows(labelled)],
        "published": _published(runs),
        "runs": [_run(run) for run in runs],
    }


def _flat(cell: str) -> str:
    return cell.replace("\n", " ")


def _run(run: ReportedRun) -> Content:
    about = run.recorded.about
    told = {"label": run.label, "origin": run.origin, "source": run.source, "verdict": run.verdict}
    notes = [*about.get("notes", []), *([about["load"]] if about.get("load") else [])]
    notes += [] if run.members else [NO_TOKENS]
    return {
        **told,
        "policy": run.scenario.policy.kind,
        "notes": notes,
        "blockers": dict(about.get("blockers", {})),
        "objectives": within(run),
        "attainment": run.summary.get("slo_attainment"),
        "limits": [{name: getattr(limits, name) for name in LIMITS} for limits in run.engine_limits],
        "engines": list(run.engines),
        "cdfs": {name: _cdf(run, name) for name in TITLES},
        "parts": _mean_parts(run),
        "late": late_tokens(run),
        "requests": _requests(run),
        **_iterations(run),
    }


def _cdf(run: ReportedRun, name: str) -> list[list[float]]:
    """Milliseconds and shares at or below; empty where there is nothing."""
    sample = latencies(run, name)
    if not sample.size:
        return [[], []]
    x, y = steps(sample)
    return [[float(f"{value:.5g}") for value in x], [round(float(share), 6) for share in y]]


def _mean_parts(run: ReportedRun) -> dict[str, float]:
    answered = run.requests[run.requests["first_token"].notna()]
    return {part: float(answered[part].mean() * 1e3) if len(answered) else 0.0 for part in TTFT_PARTS}


def _requests(run: ReportedRun) -> Content:
    """Moments in microseconds after each arrival."""
    table = run.requests
    arrival = micros(table["arrival"].to_numpy())
    columns: dict[str, Any] = {"id": packed(table["request_id"].to_numpy(), delta=True), "arrival": packed(arrival)}
    for name in MOMENTS:
        moment = micros(table[name].to_numpy())
        columns[name] = packed(np.where(moment < 0, -1, moment - arrival))
    columns |= {part: packed(micros(table[part].to_numpy())) for part in TTFT_PARTS}
    columns |= {name: packed(table[name].to_numpy(np.int64)) for name in COUNTS}
    names = list(dict.fromkeys(table["status"]))
    columns["status"] = packed(table["status"].map({name: i for i, name in enumerate(names)}).to_numpy(np.int64))
    reasons = {str(r): reason for r, reason in zip(table["request_id"], table["reason"], strict=True) if reason}
    return {"columns": columns, "statuses": names, "reasons": reasons}


def _iterations(run: ReportedRun) -> Content:
    if not len(run.iterations):
        return {"rows": {}, "members": {}, "segments": {}}
    ordered = by_engine(run.iterations, run.engines)
    first = heads(ordered)
    members = packed_members(numbered_members(ordered, run.members), first) if run.members else {}
    return {"rows": packed_rows(ordered, first), "members": members, "segments": _segments(run)}


def _segments(run: ReportedRun) -> dict[str, Packed]:
    """Stretches of decoding: whose, when the token before them came, the first decode step and how many."""
    owners, segments, _ = run.segments
    if not len(segments):
        return {}
    time, step, count, continues = segments.T
    whose_is_it = owners[np.cumsum(continues == 0) - 1]
    order = np.lexsort((time, whose_is_it))
    columns = {"request": whose_is_it, "time": np.rint(time / 1e3).astype(np.int64), "step": step, "count": count}
    return {name: packed(values[order], delta=name == "request") for name, values in columns.items()}


def _published(runs: Sequence[ReportedRun]) -> list[Content]:
    """Figures of each publication beside those of its scenario's runs; the first run of a policy stands for it."""
    found: dict[str, tuple[Any, dict[str, dict[str, ReportedRun]]]] = {}
    for run in runs:
        if run.scenario.published is not None:
            key = f"{run.name}: {run.scenario.published.source}"
            by_origin = found.setdefault(key, (run.scenario.published, {}))[1]
            by_origin.setdefault(run.origin, {}).setdefault(run.scenario.policy.kind, run)
    return [_publication(key, *both) for key, both in found.items()]


def _publication(title: str, about: Any, by_origin: Mapping[str, Mapping[str, ReportedRun]]) -> Content:
    table = [
        [f.metric, whose(f), as_published(f), *(simulated(f, runs) for runs in by_origin.values()), f.note]
        for f in about.figures
    ]
    return {"title": title, "heading": ["metric", "of", about.label, *by_origin, "note"], "rows": table}
