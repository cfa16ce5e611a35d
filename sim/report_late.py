"""Why tokens were late: gaps beyond a bound, by what shared their iteration and whose it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from sim.attribution import blame, stall_attribution
from sim.report_rows import by_engine, numbered_members
from sim.report_runs import ReportedRun

MOST_CULPRITS = 5


def late_tokens(run: ReportedRun) -> dict[str, Any]:
    """The bound (ms), how many gaps were longer by cause, and the requests whose encoding or prefill caused most."""
    bound = threshold(run)
    if bound is None or not len(run.iterations):
        return {"bound": None, "objective": False, "causes": {}, "culprits": []}
    ordered = by_engine(run.iterations, run.engines)
    shared = numbered_members(ordered, run.members) if run.members else None
    stalled = stall_attribution(ordered.assign(iteration=np.arange(len(ordered))), bound, shared)
    return {
        "bound": bound * 1e3,
        "objective": bound == run.slo.itl,
        "causes": blame(stalled),
        "culprits": [] if shared is None else _culprits(stalled),
    }


def threshold(run: ReportedRun) -> float | None:
    """The ITL SLO; where there is none, or no gap is as long, the 99th percentile of gaps; seconds."""
    sample = run.itl_sample
    if run.slo.itl is not None and (not sample.size or sample.percentile(100) > run.slo.itl * 1e9):
        return run.slo.itl
    return sample.percentile(99) / 1e9 if sample.size else run.slo.itl


def _culprits(stalled: Any) -> list[dict[str, int]]:
    encoding, prefilling = Counter[int](), Counter[int]()
    for row in stalled.itertuples():
        for counted, requests in ((encoding, row.encoding), (prefilling, row.prefilling)):
            for request in requests:
                counted[request] += int(row.num_decodes)
    both = encoding + prefilling
    worst = sorted(both, key=lambda request: (-max(encoding[request], prefilling[request]), request))[:MOST_CULPRITS]
    return [{"request": r, "encoding": encoding[r], "prefilling": prefilling[r]} for r in worst]


def within(run: ReportedRun) -> list[dict[str, Any]]:
    """Each objective in ms, with the share that keeps it: of all requests, of gaps for the ITL."""
    told = []
    for name in ("ttft", "tpot", "itl", "e2el"):
        bound = getattr(run.slo, name)
        if bound is not None:
            told.append({"name": name, "bound": bound * 1e3, "share": _share(run, name, bound)})
    return told


def _share(run: ReportedRun, name: str, bound: float) -> float | None:
    if name == "itl":
        sample = run.itl_sample
        return float(sample.weights[sample.values <= round(bound * 1e9)].sum()) / sample.size if sample.size else None
    good = (run.requests["status"] == "finished").to_numpy(bool)
    taken = run.requests[name].to_numpy(float)
    good = good & ((np.nan_to_num(taken) if name == "tpot" else taken) <= bound)
    return float(good.mean()) if len(good) else None
