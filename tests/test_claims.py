"""Published figures against simulated ones: intervals, agreement, and what would have to be true."""

from typing import Any

import numpy as np
import pytest

from sim.claims import claims, kinds
from sim.ensemble import Member, Replications
from sim.published import Published
from sim.published_page import Scene, claims_sheet, conditions
from sim.sensitivity import Setting, changes_of, crossings, settings


def ensemble(*values: float) -> Replications:
    """Of TPOT means, one a seed."""
    members = [Member(seed, "finished", 0, {"mean_tpot_ms": value}, {}, None) for seed, value in enumerate(values)]
    return Replications(members, len(members))


def published(*figures: dict[str, Any], **more: Any) -> Published:
    return Published.model_validate({"source": "us", "figures": [*figures], **more})


CHANGE = {"metric": "mean_tpot_ms", "change_percent": -10, "policy": "head_of_line", "against": "fcfs"}


def test_a_change_is_taken_seed_by_seed() -> None:
    """10 to 9, 20 to 18 and 30 to 26: -10, -10 and -13.3 %, though the means are 20 and 17.7, -11.7 %."""
    (claim,) = claims(published(CHANGE), {"fcfs": ensemble(10, 20, 30), "head_of_line": ensemble(9, 18, 26)})
    assert claim.simulated == pytest.approx([-10, -10, -40 / 3])
    assert claim.mean == pytest.approx(-100 / 9)


def test_the_interval_is_for_the_mean_of_as_many_runs_as_were_published() -> None:
    """Student's t of 3 - 1 degrees is 4.3027; the spread of 1, 2, 3 is 1; of one more run sqrt(1/3 + 1)."""
    figure = {"metric": "mean_tpot_ms", "value": 4.0, "policy": "fcfs"}
    for repetitions in (1, 3):
        (claim,) = claims(published(figure, repetitions=repetitions), {"fcfs": ensemble(1, 2, 3)})
        assert claim.half_width == pytest.approx(4.302653 * np.sqrt(1 / 3 + 1 / repetitions), rel=1e-6)
    assert claim.agrees  # 2 and 3.5 either side


@pytest.mark.parametrize(("change", "agrees"), [(1.02, True), (1.04, False), (0.98, True)])
def test_words_agree_within_what_they_come_to(change: float, agrees: bool) -> None:
    figure = {"metric": "mean_tpot_ms", "change_words": "parity", "within_percent": 3, "against": "fcfs"}
    by_policy = {"fcfs": ensemble(10, 10), "head_of_line": ensemble(10 * change, 10 * change)}
    (claim,) = claims(published(figure), by_policy)
    assert claim.agrees is agrees


def test_what_is_not_simulated_does_not_agree_either() -> None:
    figure = {"metric": "rows_peak_reserved_bytes", "value": 2**30, "policy": "hf_rows"}
    (claim,) = claims(
        published(figure), {"hf_rows": ensemble(1, 2)}
    )  # without `measure.allocator` there is no such figure
    assert claim.agrees is None
    sheet = claims_sheet([Scene("x", published(figure), [claim])], "")
    assert sheet.rows == [["`x`", "`rows_peak_reserved_bytes`", "`hf_rows`", "", "1 GiB", "not simulated", "-", "-"]]


def test_a_change_may_be_between_two_figures_of_one_run() -> None:
    names = ("per_item_device_allocations", "rows_device_allocations")
    both = [dict(zip(names, pair, strict=True)) for pair in ((200, 50), (100, 30))]
    members = [Member(seed, "finished", 0, summary, {}, None) for seed, summary in enumerate(both)]
    figure = {"metric": names[1], "against_metric": names[0], "change_percent": -71, "policy": "hf_rows"}
    assert kinds(published(figure)) == ["hf_rows"]
    (claim,) = claims(published(figure), {"hf_rows": Replications(members, 2)})
    assert claim.simulated == pytest.approx([-75, -70]) and claim.agrees
    (row,) = claims_sheet([Scene("x", published(figure), [claim])], "").rows
    assert row[2] == "change" and row[4:6] == ["-71.0 %", "-72.5 %"]


KNOBS = [
    {"path": "a.b", "values": [1, 2, 3], "what": "how much", "also": {"a.c": 1}},
    {"path": "d", "values": [0, 5], "what": "what else", "policy": "fcfs"},
]


def test_knobs_multiply_and_some_matter_to_one_policy() -> None:
    unstated = published(CHANGE, unstated=KNOBS).unstated
    assert settings(unstated) == [(1, 0), (1, 5), (2, 0), (2, 5), (3, 0), (3, 5)]
    assert changes_of(unstated, (2, 5), "fcfs") == {"a.b": 2, "a.c": 1, "d": 5}
    assert changes_of(unstated, (2, 5), "head_of_line") == {"a.b": 2, "a.c": 1}


def test_a_crossing_lies_between_neighbours_of_the_first_knob() -> None:
    """-10 % is crossed between 1 and 2 with 0, and nowhere with 5."""
    scenario = published(CHANGE, unstated=KNOBS)
    means = {(1, 0): 10.0, (2, 0): 8.0, (3, 0): 7.0, (1, 5): 10.0, (2, 5): 10.0, (3, 5): 11.0}
    found = [
        Setting(values, claims(scenario, {"fcfs": ensemble(10, 10), "head_of_line": ensemble(mean, mean)}))
        for values, mean in means.items()
    ]
    assert [(one.values, other.values) for one, other in crossings(found, 0)] == [((1, 0), (2, 0))]
    asis = claims(scenario, {"fcfs": ensemble(10, 10, 10, 10), "head_of_line": ensemble(10, 10, 10, 10.1)})
    sheet = conditions(Scene("x", scenario, asis, found))
    assert sheet.headings == ["figure", "of", "published", "0", "5", "least to greatest"]
    assert sheet.rows == [["`mean_tpot_ms`", "change", "-10.0 %", "1 to 2", "-", "-30.0 % to +10.0 %"]]


def test_within_percent_goes_with_words() -> None:
    with pytest.raises(ValueError, match="within_percent goes with change_words"):
        published(CHANGE | {"within_percent": 3})
