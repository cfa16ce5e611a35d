"""Plots of a sweep: what is drawn is what was simulated, and the front is the front."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.plot_sweep import _figures
from sim.plot_sweep_knobs import heat_map, pareto
from sim.plot_sweep_load import against_load
from sim.slo import SLO
from sim.sweep_knobs import Knob, Range
from sim.sweep_means import Swept, front, means

RATE, KIND, ROWS = "workload.arrivals.rate", "policy.kind", "engine.encoder_cache_rows"
KNOBS: dict[str, Knob] = {KIND: ("fcfs", "eager"), ROWS: (1024, 2048, 4096), RATE: (1, 2)}
FIGURES = ("p99_ttft_ms", "p50_ttft_ms", "p99_tpot_ms", "p50_tpot_ms", "output_throughput", "request_goodput")


def table(replications: int = 2) -> pd.DataFrame:
    """Every figure of a point is a number of its own: 100 a kind, 10 a size, 1 a rate, 0.1 a replication."""
    rows = []
    for kind, place in (("fcfs", 1), ("eager", 2)):
        for size, number in ((1024.0, 1), (2048.0, 2), (4096.0, 3)):
            for rate in (1.0, 2.0):
                for replication in range(replications):
                    value = 100 * place + 10 * number + rate + 0.1 * replication
                    knobs = {KIND: kind, ROWS: size, RATE: rate, "replication": replication, "seed": replication}
                    rows.append({**knobs, "verdict": "finished", **dict.fromkeys(FIGURES, value), "slo_attainment": 1})
    return pd.DataFrame(rows)


def swept(rows: pd.DataFrame, knobs: dict[str, Knob] = KNOBS, **changes: Any) -> Swept:
    found = means(rows, list(knobs))
    scores = [({path: row[path] for path in knobs}, row["request_goodput"]) for row in found.to_dict("records")]
    scores.sort(key=lambda pair: -pair[1])
    given: dict[str, Any] = {"name": "x", "slo": SLO(ttft=0.2), "knobs": knobs, "figure": "request_goodput"}
    return Swept(**given | {"means": found, "scores": scores} | changes)


def test_means_are_those_of_the_replications_and_leave_out_whoever_did_not_finish() -> None:
    rows = table()
    rows.loc[3, "verdict"] = "stalled"  # fcfs, 1024, rate 2, the second seed
    found = means(rows, list(KNOBS))
    assert len(found) == 11
    assert found.loc[0, "request_goodput"] == pytest.approx(111.05)
    assert not ((found[KIND] == "fcfs") & (found[ROWS] == 1024) & (found[RATE] == 2)).any()
    assert len(means(rows, list(KNOBS), apart=True)) == 23


def test_the_load_plot_has_a_line_for_each_other_setting_best_first() -> None:
    fig = against_load(swept(table()), RATE)
    goodput = fig.axes[2].get_lines()
    assert [list(line.get_ydata()) for line in goodput[:2]] == [[231.05, 232.05], [221.05, 222.05]]
    assert len(goodput) == 6
    words = [text.get_text() for text in fig.legends[0].get_texts()]
    assert words[:2] == ["eager encoder_cache_rows=4096", "eager encoder_cache_rows=2048"]
    assert fig.axes[0].get_lines()[-1].get_ydata()[0] == 200  # the SLO


def test_the_heat_map_has_the_best_over_the_knobs_that_it_does_not_show() -> None:
    plotted = swept(table(1))
    assert plotted.pair() == (ROWS, KIND)
    fig = heat_map(plotted, ROWS, KIND)
    cells = fig.axes[0].collections[0].get_array()
    assert np.asarray(cells).reshape(2, 3).tolist() == [[112, 122, 132], [212, 222, 232]]


def test_of_ranges_every_setting_is_a_point() -> None:
    knobs: dict[str, Knob] = {ROWS: Range(min=1, max=5000, log=True), RATE: Range(min=1, max=2)}
    rows = table(1).query(f"`{KIND}` == 'fcfs'")
    fig = heat_map(swept(rows, knobs), ROWS, RATE)
    assert sorted(map(tuple, np.asarray(fig.axes[0].collections[0].get_offsets()).tolist())) == [
        (size, rate) for size in (1024, 2048, 4096) for rate in (1, 2)
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_nobody_beats_a_point_on_the_front_and_somebody_all_others(points: list[tuple[int, int]]) -> None:
    cost, gain = np.array(points, float).T
    best = set(front(cost, gain).tolist())
    for place, (c, g) in enumerate(points):
        as_good = [p for p, (d, h) in enumerate(points) if d <= c and h >= g and p != place]
        beaten = any((points[p] != (c, g)) or p in best for p in as_good)
        assert (place in best) != beaten


def test_the_front_is_drawn() -> None:
    rows = table(1)
    rows["p99_ttft_ms"] = [5, 4, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9]
    rows["output_throughput"] = [3, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 7]
    line = pareto(swept(rows)).axes[0].get_lines()[1]
    assert np.asarray(line.get_xydata()).tolist() == [[3, 1], [4, 2], [5, 3], [9, 7]]


def test_only_what_has_varied_enough_is_drawn() -> None:
    def names(rows: pd.DataFrame, knobs: dict[str, Knob]) -> list[str]:
        return [name for name, _ in _figures(swept(rows, knobs))]

    rows = table(1)
    assert names(rows, KNOBS) == ["load", "heat_map", "pareto"]
    assert names(rows.query(f"`{RATE}` == 1"), KNOBS | {RATE: (1,)}) == ["heat_map", "pareto"]
    assert names(rows.head(1), {KIND: ("fcfs",)}) == []
    assert names(rows.assign(verdict="stalled"), KNOBS) == []
