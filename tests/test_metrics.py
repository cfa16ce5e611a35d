"""Summary figures against values worked out by hand."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from frames import engine, gaps, iterations, requests
from pydantic import ValidationError

from sim import run
from sim.attribution import blame, stall_attribution
from sim.metrics import SLO, load_verdict, summarise
from sim.samples import WeightedSample

NO_GAPS = gaps()


def test_the_first_token_is_no_gap() -> None:
    """sgl-project/sglang#1005: times 0, 1.0, 1.1, 1.2 are a TTFT of 1.0 and gaps of 0.1 and 0.1."""
    summary = summarise(requests([[0, 1.0, 1.1, 1.2]]), gaps(0.1, 0.1))
    assert summary["mean_ttft_ms"] == pytest.approx(1000)
    assert summary["mean_itl_ms"] == summary["p99_itl_ms"] == 100
    assert summary["mean_tpot_ms"] == pytest.approx(100)


def test_tpot_is_per_emitted_token_and_undefined_for_one() -> None:
    """sgl-project/sglang#10746: (last - first) / (tokens - 1); an answer of one token is left out."""
    summary = summarise(requests([[0, 1, 2, 4], [0, 5]]), NO_GAPS)
    assert summary["mean_tpot_ms"] == summary["p99_tpot_ms"] == 1500
    assert summary["completed"] == 2 and summary["median_ttft_ms"] == 3000
    assert summarise(requests([[0, 5]]), NO_GAPS)["mean_tpot_ms"] is None


def test_the_first_emitted_token_counts() -> None:
    """sgl-project/sglang#6525: a request whose first token is also its last still has a TTFT."""
    summary = summarise(requests([[1.0, 1.25]]), NO_GAPS)
    assert summary["mean_ttft_ms"] == summary["mean_e2el_ms"] == 250
    assert summary["p99_itl_ms"] is None


def test_latency_starts_at_the_arrival_on_the_one_clock() -> None:
    """tenstorrent/tt-inference-server#259: no client time is added; what waits before the engine is in the TTFT."""
    table = requests([[2.0, 3.0, 3.5]], prepared=2.6, admitted=2.8, preparation=0.6, queue_wait=0.2, prefill=0.2)
    summary = summarise(table, NO_GAPS)
    parts = [summary["mean_preparation_ms"], summary["mean_queue_wait_ms"], summary["mean_prefill_ms"]]
    assert parts == pytest.approx([600, 200, 200]) and sum(parts) == pytest.approx(summary["mean_ttft_ms"])
    assert summary["duration"] == 1.5


def test_percentiles_and_deviation_are_numpys() -> None:
    waits = [0.1, 0.2, 0.4, 0.8, 1.6]
    summary = summarise(requests([[0, wait] for wait in waits]), gaps(*waits))
    for name in ("ttft", "e2el", "itl"):
        assert summary[f"std_{name}_ms"] == pytest.approx(np.std(waits) * 1e3)
        assert summary[f"median_{name}_ms"] == summary[f"p50_{name}_ms"] == pytest.approx(400)
        for q in (90, 95, 99):
            assert summary[f"p{q}_{name}_ms"] == pytest.approx(np.percentile(waits, q) * 1e3)


def test_rates_and_counts() -> None:
    table = requests(
        [[0, 1, 2], [1, 2, 3, 4], [1], [2], [2]], status=["finished"] * 2 + ["stalled", "rejected", "failed"]
    )
    summary = summarise(table, gaps(1, 1, 1), slo=SLO(ttft=1, e2el=2.5))
    assert [summary[key] for key in ("completed", "failed", "rejected", "stalled", "cancelled")] == [2, 1, 1, 1, 0]
    assert summary["duration"] == 4
    assert summary["request_throughput"] == 0.5 and summary["output_throughput"] == 5 / 4
    assert summary["total_token_throughput"] == 25 / 4
    assert summary["total_input_tokens"] == 20
    assert summary["total_input_vision_tokens"] == 8 and summary["total_input_text_tokens"] == 12
    assert summary["request_goodput"] == 0.25 and summary["slo_attainment"] == 0.2
    assert summary["concurrency"] == 5 / 4
    assert summary["max_concurrent_requests"] == 3  # the stalled one stays to the end


def test_goodput_takes_a_missing_tpot_as_nothing_and_ignores_itl() -> None:
    table = requests([[0, 1], [0, 1, 3]])
    assert summarise(table, gaps(2), slo=SLO(tpot=1))["slo_attainment"] == 0.5
    assert summarise(table, gaps(2), slo=SLO(itl=0.1))["request_goodput"] is None
    assert summarise(table, gaps(2))["slo_attainment"] is None


def test_a_bound_that_is_just_met_is_met() -> None:
    assert summarise(requests([[0, 0.2]]), NO_GAPS, slo=SLO(ttft=0.2))["slo_attainment"] == 1


def test_concurrency_lets_one_leave_before_the_next_comes() -> None:
    assert summarise(requests([[0, 1], [1, 2], [2, 3]]), NO_GAPS)["max_concurrent_requests"] == 1
    assert summarise(requests([[0, 1.5], [1, 2], [2, 3]]), NO_GAPS)["max_concurrent_requests"] == 2


def test_the_fullest_second_counts_first_tokens_and_decodes() -> None:
    table = requests([[0.5, 1.0, 1.2, 1.7], [0.5, 1.0, 1.2, 1.4, 1.7]])
    steps = np.array([1.0, 1.2, 1.4, 1.7]) * 1e9, np.array([0, 2, 1, 2])
    summary = summarise(table, NO_GAPS, decode_steps=(steps[0].astype(np.int64), steps[1]))
    assert summary["max_output_tokens_per_s"] == 5  # seconds from 0.5 to 1.5
    assert summarise(table, NO_GAPS)["max_output_tokens_per_s"] is None
    given = np.array([1_200_000_000]), np.array([4])
    assert summarise(table, NO_GAPS, decode_steps=given)["max_output_tokens_per_s"] == 6


def test_encoder_figures() -> None:
    times = {"encode": [0.5, 0, 0.5], "compute": [0.5, 1, 1.5]}
    batches = iterations([1, 2, 4], **times, encoder_tokens=[100, 0, 60], encoder_rows_held=[25, 9, 0])
    table = requests([[0, 2], [0, 4]], num_encodes=[1, 2], num_cache_hits=[1, 0], num_preemptions=[0, 3])
    summary = summarise(table, NO_GAPS, engine=engine(batches))
    assert summary["total_encoder_tokens"] == 160 and summary["max_encoder_rows_held"] == 25
    assert summary["encoder_busy_fraction"] == 0.25 and summary["engine_busy_fraction"] == 1
    assert summary["encoder_cache_hits"] == 1 and summary["encoder_cache_hit_rate"] == 0.25
    assert summary["num_preemptions"] == 3


@pytest.mark.parametrize("warmup", [{"warmup_requests": 1}, {"warmup": 1.0}])
def test_a_warm_up_is_left_out_of_latencies_and_rates(warmup: dict[str, float]) -> None:
    table = requests([[0, 3, 5], [2, 3, 5], [4, 5, 6]])
    itl = WeightedSample(np.array([10**9, 2 * 10**9]), np.array([1, 3]), ends=np.array([10**9, 5 * 10**9]))
    summary = summarise(table, itl, engine=engine(iterations([1, 3, 6])), **warmup)
    start = 1.0 if "warmup" in warmup else 2.0
    assert summary["completed"] == 2 and summary["duration"] == 6 - start
    assert summary["request_throughput"] == 2 / (6 - start)
    assert summary["p99_ttft_ms"] == 1000
    assert summary["mean_itl_ms"] == 2000 and summary["num_iterations"] == 2


def test_the_window_can_be_given() -> None:
    assert summarise(requests([[0, 3]]), NO_GAPS, duration_window=(0, 10))["request_throughput"] == 0.1


@pytest.mark.parametrize("table", [requests([]), requests([[0.0], [1.0]]), requests([[0, 0.0]])])
def test_any_run_has_a_summary_that_json_can_hold(table: pd.DataFrame) -> None:
    summary = summarise(table, NO_GAPS, engine=engine(iterations([])), slo=SLO(ttft=1))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary.keys() == summarise(requests([[0, 1]]), gaps(1), engine=engine(iterations([1]))).keys()


@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf])
def test_an_slo_is_a_positive_time(bound: float) -> None:
    with pytest.raises(ValidationError):
        SLO(ttft=bound)


def server(rate: float, capacity: float, count: int, seed: int = 0, answer: float = 0.0) -> pd.DataFrame:
    """A queue with one server for first tokens; answers then take up to `answer` seconds, side by side."""
    rng = np.random.default_rng(seed)
    arrivals, free, times = np.cumsum(rng.exponential(1 / rate, count)), 0.0, []
    for arrival in arrivals:
        free = max(free, arrival) + 1 / capacity
        times.append([arrival, free, free + answer * rng.random()])
    return requests(times)


def test_a_load_past_capacity_is_said_so() -> None:
    assert load_verdict(server(12, 7.1, 400)) == "offered 10.6 requests/s, served 7.1: the queue grows"


def test_so_it_is_when_the_run_is_cut_short() -> None:
    table = server(12, 6, 400)
    table = table[table["arrival"] < 30].reset_index()
    table.loc[table["finish"] > 30, ["first_token", "finish"]] = math.nan
    table["status"] = np.where(table["finish"].isna(), "unfinished", "finished")
    assert load_verdict(table) == "offered 10.6 requests/s, served 6.0: the queue grows"


@pytest.mark.parametrize("count", [0, 1, 30, 400])
@pytest.mark.parametrize("seed", range(5))
def test_a_load_that_is_carried_is_not(count: int, seed: int) -> None:
    assert load_verdict(server(8, 10, count, seed)) is None
    assert load_verdict(server(8, 20, count, seed, answer=60.0)) is None  # most of the run is its tail


def test_nor_are_requests_all_at_once_or_in_a_closed_loop() -> None:
    assert load_verdict(requests([[0, wait] for wait in range(1, 100)])) is None
    users = [[max(0.0, index - 8.0), index + 1.0] for index in range(200)]
    assert load_verdict(requests(users)) is None


def test_stalls_are_the_long_iterations_that_carried_decodes() -> None:
    batches = iterations(
        [0.1, 0.5, 0.8, 0.85],
        num_decodes=[0, 3, 2, 9],
        encode=[0.0, 0.3, 0.0, 0.0],
        encoder_tokens=[0, 4096, 0, 0],
        num_prefill_tokens=[500, 0, 2048, 0],
    )
    stalls = stall_attribution(batches, 0.08, {1: ([7, 8], []), 2: ([], [9])})
    assert stalls["iteration"].tolist() == [1, 2]
    assert stalls["encode_share"].tolist() == pytest.approx([0.75, 0])
    assert stalls["encoding"].tolist() == [[7, 8], []] and stalls["prefilling"].tolist() == [[], [9]]
    assert blame(stalls) == {"encode": 3, "prefill": 2, "encode and prefill": 0, "decodes alone": 0}
    assert stall_attribution(batches, 1.0).empty


def test_a_run_in_which_nobody_was_served_has_a_summary() -> None:
    table = requests([[0], [0.5]]).assign(first_token=np.nan, finish=np.nan, ttft=np.nan, e2el=np.nan, status="stalled")
    steps = np.array([1_000_000_000]), np.array([1])
    summary = summarise(table, NO_GAPS, decode_steps=steps)
    assert summary["stalled"] == 2 and summary["max_output_tokens_per_s"] is None and summary["duration"] is None


@pytest.mark.parametrize("warmup", [0.0, 1.3])
def test_what_the_log_says_of_iterations_is_what_their_table_says(warmup: float) -> None:
    served = run("scenarios/bursty_images.yaml", {"workload.num_requests": 40, "measure.warmup": warmup})
    from_table = summarise(served.requests, served.itl_sample, engine=engine(served.iterations), warmup=warmup)
    names = ["num_iterations", "total_encoder_tokens", "encoder_busy_fraction", "engine_busy_fraction"]
    names += ["max_kv_blocks_used", "max_encoder_rows_held"]
    assert {name: served.summary[name] for name in names} == {name: from_table[name] for name in names}
    assert all(from_table[name] for name in names)
