"""What a notebook shows of a run: its figures as a table, small plots that need no file, and plots by name."""

import base64
import re

import pytest

from sim import Run, run, side_by_side
from sim.plot_latencies import TITLES
from workloads.errors import InputError

TIGHT = "tests/data/scenario.yaml"
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def tight() -> Run:
    return run(TIGHT)


@pytest.fixture(scope="module")
def pooled() -> Run:
    return run("scenarios/disaggregated.yaml", set={"workload.num_requests": 20})


def pictures(html: str) -> list[bytes]:
    return [base64.b64decode(found) for found in re.findall(r"data:image/png;base64,([^\"]+)", html)]


def test_a_run_shows_its_figures_and_a_picture(tight: Run) -> None:
    html = tight._repr_html_()
    assert f">{tight.summary['completed']}<" in html
    assert f">{tight.summary['p99_ttft_ms']:,.1f}<" in html
    assert [picture[:6] for picture in pictures(html)] == [PNG]
    assert 'src="http' not in html


def test_the_same_run_is_shown_by_the_same_bytes(tight: Run) -> None:
    assert run(TIGHT)._repr_html_() == tight._repr_html_()


def test_names_cannot_break_out_of_the_page(tight: Run) -> None:
    html = side_by_side({"<script>x": tight})._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;x" in html


def test_a_stalled_run_says_who_waits_for_what() -> None:
    html = run("scenarios/deadlock.yaml", set={"policy.kind": "head_of_line"})._repr_html_()
    assert "stalled" in html and "request 1 " in html


def test_side_by_side_has_a_column_a_run(tight: Run) -> None:
    other = run(TIGHT, set={"policy.kind": "footprint"})
    both = side_by_side({"first": tight, "second": other})
    assert re.findall(r"<th[^>]*>(\w+)</th>", both._repr_html_()) == ["simulated", "first", "second"]
    assert repr(both) == "<SideBySide: first, second>"
    with pytest.raises(InputError, match="no run"):
        side_by_side({})


@pytest.mark.parametrize("name", TITLES)
def test_each_latency_has_a_plot(tight: Run, name: str) -> None:
    fig = getattr(tight.plot, name)()
    assert [ax.get_title("left") for ax in fig.axes] == [TITLES[name], f"{TITLES[name]}: the tail"]
    assert fig._repr_png_().startswith(PNG)


def test_other_plots_are_there_too(tight: Run) -> None:
    figures = [tight.plot.latencies(), tight.plot.breakdown(), tight.plot.stalls(), tight.plot.gantt()]
    assert [len(fig.axes) for fig in figures] == [8, 1, 1, 1]
    assert len(tight.plot.occupancy().axes) == 3


def test_a_timeline_shows_the_window_asked_for(tight: Run) -> None:
    end = float(tight.iterations["end"].max())
    low, high = tight.plot.timeline(end / 4, end / 2).axes[0].get_xlim()
    assert low <= end / 4 < end / 2 <= high < end
    assert tight.plot.timeline(end / 2).axes[0].get_xlim()[1] == pytest.approx(end)
    with pytest.raises(InputError, match="ends after it starts"):
        tight.plot.timeline(2, 1)


def test_of_several_engines_one_is_drawn(pooled: Run) -> None:
    name = pooled.engines[0]
    assert name in pooled.plot.timeline(engine=name).texts[0].get_text()
    with pytest.raises(InputError, match=f"one of: {name}"):
        pooled.plot.timeline()
    with pytest.raises(InputError, match=f"nearest: {name}"):
        pooled.plot.occupancy(engine=name[:-1])
