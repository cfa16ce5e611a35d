"""The parts of a comparison: intervals and ranks as others compute them, shapes, noise, and prices of plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_runs import live_run, small
from scipy.stats import kendalltau

from sim.bootstrap import STATISTICS, Sample, draws, interval
from sim.compare_forced import by_shape, forced, frames
from sim.compare_free import Figure, Free, Side, free
from sim.cost_model import CostModel
from sim.differences import fields_that_differ
from sim.plan_log import PlanLine
from sim.profiles import load_profile
from sim.ranks import kendall_tau, ranks
from sim.run import run
from sim.same_scenario import differences
from sim.shapes import coarse, spread, told
from sim.token_times import gaps_by_request

COST = CostModel.from_profile(load_profile("h200/qwen3-vl-8b"))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), num_requests=st.integers(1, 6), size=st.integers(1, 700))
def test_statistics_are_numpys_on_the_drawn_values(data: st.DataObject, num_requests: int, size: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values, owners = rng.integers(0, 40, size).astype(float), rng.integers(0, num_requests, size)
    drawn = rng.integers(0, 4, (3, num_requests))
    for row, told_row in zip(drawn, Sample(values, owners, num_requests).statistics(drawn), strict=True):
        written = np.repeat(values, row[owners])
        if not len(written):
            assert np.isnan(told_row).all()
            continue
        assert told_row == pytest.approx([written.mean(), *np.percentile(written, (50, 90, 95, 99))])


def test_draws_are_seeded_and_keep_their_number() -> None:
    one, again, other = (np.concatenate(list(draws(30, seed))) for seed in (1, 1, 2))
    assert (one == again).all() and not (one == other).all()
    assert one.shape == (400, 30) and (one.sum(axis=1) == 30).all()
    assert list(draws(0, 1)) == []


def test_an_interval_covers_what_it_should() -> None:
    """Of samples whose mean is known, about 95 % of intervals hold it."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(100):
        values = rng.normal(10, 2, 60)
        sample = Sample(values, np.arange(60), 60)
        low, high = interval(np.concatenate([sample.statistics(some)[:, 0] for some in draws(60, 5)])) or (0, 0)
        held += low <= 10 <= high
    assert 85 <= held <= 100


@settings(max_examples=100, deadline=None, derandomize=True)
@given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8))
def test_kendalls_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    ours, theirs = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    tau = kendall_tau(ours, theirs)
    if len(set(ours)) == 1 or len(set(theirs)) == 1:
        assert tau is None
    else:
        assert tau == pytest.approx(kendalltau(ours, theirs).statistic)


def test_ranks_need_every_variant() -> None:
    def variant(**values: tuple[float | None, float | None]) -> Free:
        return Free(1, 0, {name: Figure(*pair, None, None, None) for name, pair in values.items()})

    told = ranks({"a": variant(x=(1, 1), y=(1, 2), z=(1, None)), "b": variant(x=(2, 3), y=(2, 1), z=(2, 2))})
    assert told == {"x": 1.0, "y": -1.0}
    assert ranks({"a": variant(x=(1, 1))}) == {}


def test_shapes_are_told_in_powers_of_two() -> None:
    exponents = coarse(np.array([[0.0, 1.0], [2.0, 1023.0], [3.0, 1024.0]]))
    labels = [told(("a", "b"), tuple(row)) for row in exponents.tolist()]
    assert labels == ["a 0, b 1", "a 2-3, b 512-1,023", "a 2-3, b 1,024-2,047"]


@pytest.mark.parametrize("cv", [0.02, 0.1])
def test_noise_is_the_spread_within_shapes_and_knows_nothing_of_outliers(cv: float) -> None:
    rng = np.random.default_rng(0)
    shapes = np.repeat([[1.0], [8.0], [64.0], [512.0]], 200, axis=0)
    ratios = np.repeat([0.5, 1.0, 2.0, 4.0], 200) * rng.normal(1, cv, 800)
    assert spread(ratios, shapes) == pytest.approx(100 * cv, rel=0.15)
    ratios[::50] *= 10
    assert spread(ratios, shapes) == pytest.approx(100 * cv, rel=0.2)
    assert spread(ratios[:4], shapes[:4]) is None and spread(ratios[:0], shapes[:0]) is None


def test_prices_of_plans_are_those_of_the_simulation() -> None:
    """A run that was not perturbed took what its plans are priced at, to the nanosecond."""
    _, texts = live_run(small(), cv=0.0)
    plans = [PlanLine.model_validate_json(text) for text in texts]
    checked = forced(plans, COST)
    assert set(checked.stages) >= {"encoder", "decode", "mixed", "host"} and checked.num_failed == 0
    for name, stage in checked.stages.items():
        assert (stage.measured == stage.predicted).all()
        assert stage.errors().error_percent == stage.errors().mape_percent == 0.0
        assert sum(errors.iterations for _, errors in by_shape(name, stage)) == len(stage.measured)
    assert len(checked.stages["host"].measured) == len(plans)
    language = [checked.stages[name].measured for name in ("prefill", "decode", "mixed") if name in checked.stages]
    assert sum(map(len, language)) == sum(1 for line in plans if line.prefill or line.num_decodes)


def test_errors_are_signed_against_what_was_measured() -> None:
    line = PlanLine(iteration=0, num_decodes=2, context_tokens=100, elapsed_ns=(0, 0, 10_000_000))
    stage = forced([line, line], COST).stages["decode"]
    predicted = COST.compute((), 2, 100)
    errors = stage.errors()
    assert (errors.iterations, errors.measured_ms) == (2, 10.0)
    assert errors.error_percent == pytest.approx(100 * (predicted / 1e7 - 1)) == -(errors.mape_percent or 0)
    host = forced([line], COST).stages["host"].errors()
    assert host.error_percent is None and host.mape_percent is None  # it took no time: nothing to be a percentage of


def test_iterations_that_failed_somebody_are_left_out() -> None:
    line = PlanLine(iteration=0, encode=[(1, 0, (1, 4, 4))], elapsed_ns=(1, 2, 3), failed=[1], reason="broken")
    assert forced([line], COST).stages == {} and forced([line], COST).num_failed == 1


def test_frames_are_those_of_the_items() -> None:
    line = PlanLine(iteration=0, encode=[(1, 0, (1, 4, 6)), (2, 1, (3, 2, 2))])
    assert frames(line.encode) == (24 + 12, 24**2 + 3 * 4**2)


def test_gaps_by_request_are_all_gaps() -> None:
    served = run(small("footprint", engine={"capacity": "max_utilization", "num_kv_blocks": 80}))
    assert served.requests["num_preemptions"].sum() > 0
    owners, gaps = gaps_by_request(served)
    assert np.array_equal(np.sort(gaps) / 1e9, np.sort(served.itl))
    for id, row in served.requests.set_index("request_id").iterrows():
        own = gaps[owners == id]
        assert len(own) == row["output_tokens"] - 1
        assert own.sum() / 1e9 == pytest.approx(row["finish"] - row["first_token"], abs=1e-8)


def test_the_warm_up_and_the_unfinished_are_left_out() -> None:
    served = run(small(clients={"timeout": 0.6}))
    finished = int((served.requests["status"] == "finished").sum())
    assert 0 < finished < 16
    side = Side(served.requests, gaps_by_request(served))
    whole = free(side, side, warmup_requests=0, warmup=0.0)
    assert (whole.num_requests, whole.num_left_out) == (finished, 16 - finished)
    assert all(figure.error_percent == 0 for figure in whole.figures.values())
    cut = free(side, side, warmup_requests=3, warmup=0.0)
    assert cut.num_requests == int((served.requests["status"][3:] == "finished").sum())
    late = free(side, side, warmup_requests=0, warmup=1e6)
    assert late.num_requests == 0 and all(figure == Figure(*[None] * 5) for figure in late.figures.values())
    assert list(late.figures) == list(whole.figures) and f"{STATISTICS[0]}_ttft_ms" in whole.figures


def test_scenarios_differ_in_what_changes_what_happens() -> None:
    base = small()
    assert differences(base, small(simulation={"fast_path": False}, slo={"ttft": 1.0}, name="other")) == {}
    changed: Any = differences(base, small("fcfs", engine={"num_kv_blocks": 131}))
    assert changed == {"policy.kind": ("head_of_line", "fcfs"), "engine.num_kv_blocks": ("130", "131")}


def test_differing_fields_are_short() -> None:
    many = {f"f{index}": index for index in range(7)}
    words = fields_that_differ(many, {})
    assert words.startswith("f0: twin 0, live none; ") and words.endswith("; and 3 more")
    assert len(fields_that_differ({"decode": list(range(500))}, {"decode": []})) < 130
