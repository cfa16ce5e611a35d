"""The front end: what pictures cost, what is left to the engine's loop, and an event loop that hands tokens over."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import Run, Scenario, run
from sim.front_end import FrontEnd, PixelCost
from sim.metrics import TTFT_PARTS
from workloads.models import MODELS
from workloads.request import MultimodalItem

MODEL = MODELS["qwen3-vl-8b"]
MEGAPIXEL = (1250, 800)


def small(**sections: Any) -> Run:
    workload = {
        "kind": "synthetic",
        "num_requests": 3,
        "arrivals": {"kind": "at_once"},
        "text_tokens": 100,
        "output_tokens": 3,
    }
    content = {
        "model": "qwen3-vl-8b",
        "profile": "h200/qwen3-vl-8b",
        "policy": {"kind": "fcfs"},
        "workload": workload | sections.pop("workload", {}),
        **sections,
    }
    return run(Scenario.model_validate(content))


def pictures(*sizes: tuple[int, int]) -> list[MultimodalItem]:
    return [MODEL.item(str(index), "image", *size, 1, offset=0) for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("cost", "sizes", "milliseconds"),
    [
        ({}, [MEGAPIXEL], 0),
        ({"ms_per_megapixel": 40, "ms_per_image": 3}, [MEGAPIXEL] * 2, 2 * 43),
        ({"ms_per_megapixel": 40, "large": (2.5, "request", 60)}, [MEGAPIXEL] * 2, 80),
        ({"ms_per_megapixel": 40, "large": (2.5, "request", 60)}, [MEGAPIXEL] * 3, 180),  # all of them are large then
        ({"ms_per_megapixel": 40, "large": (1.0, "image", 60)}, [MEGAPIXEL] * 3, 120),
        ({"ms_per_megapixel": 40, "large": (1.5, "image", 60)}, [MEGAPIXEL, (2000, 1000)], 40 + 2 * 60),
    ],
)
def test_what_pixels_cost(cost: dict[str, Any], sizes: list[tuple[int, int]], milliseconds: float) -> None:
    if "large" in cost:
        cost = cost | {"large": dict(zip(("above_megapixels", "of", "ms_per_megapixel"), cost["large"], strict=True))}
    assert PixelCost.model_validate(cost).of_items(pictures(*sizes)) == pytest.approx(milliseconds * 1e6)


def test_an_event_loop_hands_tokens_over_between_its_rounds() -> None:
    """Three requests at once are one round of 0.3 s: the first two are answered in it, the last one after it."""
    r = small(front_end={"ms_per_request": 100, "event_loop": True})
    table = r.requests
    assert table["prepared"].tolist() == [0.1, 0.2, 0.3]
    assert table["first_token"].tolist()[:2] == [0.3, 0.3] and table["finish"].tolist()[:2] == [0.3, 0.3]
    made = r.iterations["end"].iloc[0]
    assert table.loc[0, "delivery"] == pytest.approx(0.3 - made) and table.loc[2, "delivery"] == 0
    assert table["tpot"].tolist()[:2] == [0, 0]
    alone = small(workload={"num_requests": 1})
    assert table.loc[2, "first_token"] - 0.3 == pytest.approx(alone.requests.loc[0, "ttft"])
    assert sorted(r.itl)[:4] == [0] * 4 and r.itl.max() == pytest.approx(alone.itl.max())


def test_a_client_sends_again_when_it_has_its_answer() -> None:
    """Two users: both first requests are in the round to 0.2 s, and what follows the first answer is in the next."""
    users = {"arrivals": {"kind": "concurrency", "users": 2}, "num_requests": 4}
    r = small(front_end={"ms_per_request": 100, "event_loop": True}, workload=users)
    assert r.requests["arrival"].tolist()[:3] == [0, 0, 0.2] and r.requests.loc[2, "prepared"] == pytest.approx(0.3)
    at_once = small(front_end={"ms_per_request": 100}, workload=users)
    assert at_once.requests.loc[2, "arrival"] == at_once.requests.loc[0, "finish"] < 0.2


def test_what_reaches_a_client_after_its_timeout_it_never_had() -> None:
    r = small(front_end={"ms_per_request": 100, "event_loop": True}, clients={"timeout": 0.105})
    gone = r.requests[r.requests["status"] == "cancelled"]
    assert len(gone) == 3 and gone["first_token"].isna().all() and gone["ttft"].isna().all()


def test_what_is_left_to_the_engine_is_paid_as_it_takes_a_request_in() -> None:
    images = {"images": {"count": 2, "size": "1250x800"}}
    plain, exposed = (small(workload=images, front_end={"exposed": {"ms_per_megapixel": ms}}) for ms in (0, 10))
    hosts = [r.iterations["host"].to_numpy() for r in (plain, exposed)]
    assert hosts[1][0] - hosts[0][0] == pytest.approx(3 * 2 * 0.010)
    assert np.array_equal(hosts[0][1:], hosts[1][1:])
    assert exposed.requests["first_token"].min() == pytest.approx(plain.requests["first_token"].min() + 0.06)


def test_an_event_loop_is_one_thread() -> None:
    with pytest.raises(ValueError, match="an event_loop is one thread: workers is 2"):
        FrontEnd(event_loop=True, workers=2)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([{"kind": "concurrency", "users": 5}, {"kind": "poisson", "rate": 12}]))
def test_times_follow_one_another_on_both_paths(seed: int, arrivals: dict[str, Any]) -> None:
    load = {
        "num_requests": 25,
        "arrivals": arrivals,
        "text_tokens": {"kind": "uniform", "min": 1, "max": 300},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 40},
        "images": {"count": {"kind": "uniform", "min": 0, "max": 2}, "size": "640x480"},
    }
    front_end = {"ms_per_megapixel": 80, "event_loop": True, "exposed": {"ms_per_megapixel": 20, "ms_per_image": 1}}
    quick, slow = (
        small(seed=seed, workload=load, front_end=front_end, simulation={"fast_path": fast}) for fast in (True, False)
    )
    pd.testing.assert_frame_equal(quick.requests, slow.requests)
    pd.testing.assert_frame_equal(quick.iterations, slow.iterations)
    assert quick.summary == slow.summary
    table = quick.requests
    assert (table["arrival"] <= table["prepared"]).all() and (table["first_token"] <= table["finish"]).all()
    assert (table[list(TTFT_PARTS)] >= 0).all(axis=None)
    assert abs(table[list(TTFT_PARTS)].sum(axis=1) - table["ttft"]).max() < 1e-9
    assert quick.itl.sum() == pytest.approx((table["e2el"] - table["ttft"]).sum())
    assert len(quick.itl) == (table["output_tokens"] - 1).sum() and (quick.itl >= 0).all()


def test_a_draw_takes_all_costs_off_by_one_factor() -> None:
    large = {"above_megapixels": 1, "of": "image", "ms_per_megapixel": 4}
    exposed = {"ms_per_megapixel": 6, "ms_per_image": 8, "large": large}
    plain = FrontEnd.model_validate({"ms_per_megapixel": 2, "ms_per_request": 10, "large": large, "exposed": exposed})
    assert plain.drawn(3) is plain and plain.model_copy(update={"spread": 0.1}).drawn(None).ms_per_megapixel == 2
    drawn = [plain.model_copy(update={"spread": 0.1}).drawn(number) for number in range(200)]
    factors = np.array([front_end.ms_per_megapixel / 2 for front_end in drawn])
    assert np.std(np.log(factors)) == pytest.approx(0.1, rel=0.15)
    assert drawn[0] == plain.model_copy(update={"spread": 0.1}).drawn(0)
    for front_end, factor in zip(drawn[:5], factors, strict=False):
        costs = (front_end.ms_per_request, front_end.exposed.ms_per_megapixel, front_end.exposed.ms_per_image)
        assert costs == pytest.approx((10 * factor, 6 * factor, 8 * factor))
        assert front_end.large is not None and front_end.large.ms_per_megapixel == pytest.approx(4 * factor)
        assert front_end.exposed.large is not None and front_end.exposed.large.above_megapixels == 1
