"""Every shipped scenario loads, runs, and shows what its comment says."""

from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from acting import ALIKE, IN_ORDER

from policies import POLICIES
from sim import Run, Scenario, run
from sim.metrics import TTFT_PARTS

SCENARIOS = Path(__file__).parent.parent / "scenarios"
FILES = sorted([*SCENARIOS.glob("*.yaml"), *SCENARIOS.glob("published/*.yaml")])
ALL = [path.relative_to(SCENARIOS).with_suffix("").as_posix() for path in FILES]
OTHERS = ("_server", "_memory")  # of other engines, with limits and objectives of their own
NAMES = [name for name in ALL if not name.endswith(OTHERS)]
KINDS = [policy.model_fields["kind"].default for policy in POLICIES]
LATENCIES = ("median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms")


@cache
def simulated(name: str, *changes: tuple[str, object]) -> Run:
    return run(SCENARIOS / f"{name}.yaml", dict(changes))


def under(name: str, kind: str, *changes: tuple[str, object]) -> Run:
    return simulated(name, ("policy.kind", kind), *changes)


def test_which_are_shipped() -> None:
    light = {f"published/light_c{users}" for users in (1, 8, 32)}
    tables = light | {
        f"published/{name}" for name in ("bursty_c8", "bursty_c32", "reuse", "memory_stress", "memory_rows")
    }
    others = {"bursty_images", "deadlock", "production_mix", "shared_prefix", "text_only", "trace_replay"}
    engines = {"disaggregated", "side_stream"}
    assert tables | others | engines <= set(NAMES)
    assert {"published/vllm_server", "published/sglang_server"} == set(ALL) - set(NAMES)


@pytest.mark.parametrize("name", ALL)
def test_opens_with_what_it_shows(name: str) -> None:
    text = (SCENARIOS / f"{name}.yaml").read_text()
    comment = text[: text.index("\nname: ")]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert "# Look at: " in comment
    assert f"#   tandem run scenarios/{name}.yaml" in comment
    assert Scenario.load(SCENARIOS / f"{name}.yaml").name == Path(name).name


@pytest.mark.parametrize("name", [name for name in NAMES if name != "deadlock"])
def test_runs_within_its_means(name: str) -> None:
    result = simulated(name)
    requests, iterations, limits = result.requests, result.iterations, result.limits
    assert result.verdict == "finished"
    assert set(requests["status"]) == {"finished"}
    assert (result.load, result.allocation_failures, requests["num_preemptions"].sum()) == (None, 0, 0)
    assert abs(requests[list(TTFT_PARTS)].sum(axis=1) - requests["ttft"]).max() < 1e-6
    assert result.summary["slo_attainment"] > 0.25
    assert iterations["kv_blocks_used"].max() <= limits.num_kv_blocks
    assert iterations["encoder_rows_resident"].max() <= limits.encoder_cache_rows
    if name != "published/memory_rows":  # whose engine has no other budget than its rows
        assert iterations["encoder_tokens"].max() <= limits.encoder_max_num_tokens
        assert iterations["num_items"].max() <= limits.encoder_max_num_items
    assert (iterations["num_prefill_tokens"] + iterations["num_decodes"]).max() <= limits.max_num_batched_tokens
    assert iterations["num_running"].max() <= limits.max_num_seqs


@pytest.mark.parametrize("name", NAMES)
def test_hits_only_where_content_repeats(name: str) -> None:
    shared = name in ("published/reuse", "shared_prefix", "trace_replay")
    assert (simulated(name).summary["encoder_cache_hits"] > 0) == shared


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("published/")])
def test_published_figures_have_a_simulated_one_beside_them(name: str) -> None:
    published = simulated(name).scenario.published
    source = "#46376" if name == "published/memory_rows" else "#16051"
    assert published is not None and source in published.source
    for figure in published.figures:
        assert figure.metric in simulated(name).summary


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_policies_differ_on_bursty_images(seed: int) -> None:
    runs = [under("bursty_images", kind, ("seed", seed)) for kind in KINDS]
    assert {result.verdict for result in runs} == {"finished"}
    assert len({result.decisions for result in runs}) == len(KINDS)
    for one, other in combinations(runs, 2):
        assert any(one.summary[name] != other.summary[name] for name in LATENCIES)


def test_bursty_images_binds_both_caches() -> None:
    result = simulated("bursty_images")
    iterations, rows, blocks = result.iterations, result.limits.encoder_cache_rows, result.limits.num_kv_blocks
    assert isinstance(rows, int) and iterations["encoder_rows_held"].max() > 0.95 * rows
    assert isinstance(blocks, int) and iterations["kv_blocks_used"].max() > 0.9 * blocks
    assert result.requests["encoder_budget_wait"].sum() > 0
    assert result.requests["reservation_wait"].sum() > 0


def test_bursty_images_trades_ttft_for_itl() -> None:
    """Eager gives the steadiest decodes and the longest waits."""
    figures = {kind: under("bursty_images", kind).summary for kind in IN_ORDER}
    assert min(figures, key=lambda kind: figures[kind]["p99_itl_ms"]) == "eager"
    assert max(figures, key=lambda kind: figures[kind]["p90_ttft_ms"]) == "eager"


def test_light_load_and_text_need_no_policy() -> None:
    for name in (f"published/light_c{users}" for users in (1, 8, 32)):
        before, after = under(name, "unbudgeted").summary, under(name, "head_of_line").summary
        for figure in ("request_throughput", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms"):
            assert after[figure] == pytest.approx(before[figure], rel=1e-3)
    few = ("workload.num_requests", 100)
    assert len({under("text_only", kind, few).decisions for kind in ALIKE}) == 1
    assert under("text_only", "head_of_line", few).summary["total_encoder_tokens"] == 0


def test_reuse_saves_encoding() -> None:
    cold, warm = under("published/reuse", "unbudgeted"), under("published/reuse", "head_of_line")
    assert cold.summary["encoder_cache_hits"] == 0
    assert warm.summary["encoder_cache_hits"] == 3 * warm.summary["completed"]
    assert warm.summary["median_ttft_ms"] < cold.summary["median_ttft_ms"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_prefix_is_computed_once(kind: str) -> None:
    on, off = (under("shared_prefix", kind, ("engine.enable_prefix_caching", cached)) for cached in (True, False))
    assert (
        on.summary["prefix_cache_hit_rate"] == pytest.approx(0.9, abs=0.05) and off.summary["total_cached_tokens"] == 0
    )
    assert on.summary["median_ttft_ms"] < off.summary["median_ttft_ms"] / 2
    assert on.summary["max_kv_blocks_used"] < off.summary["max_kv_blocks_used"] / 4
    larger = under("shared_prefix", kind, ("engine.block_size", 1024))
    assert larger.summary["prefix_cache_hit_rate"] < 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_memory_stress_completes_within_a_budget(kind: str) -> None:
    result = under("published/memory_stress", kind)
    assert (result.summary["completed"], result.allocation_failures) == (128, 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_memory_rows_trap_less(seed: int) -> None:
    """The sign that was published; what is reserved hardly changes."""
    figures = simulated("published/memory_rows", ("seed", seed)).summary
    assert figures["rows_peak_inactive_split_bytes"] < figures["per_item_peak_inactive_split_bytes"]
    reserved = figures["rows_peak_reserved_bytes"] / figures["per_item_peak_reserved_bytes"]
    assert reserved == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("kind", ["fcfs", "eager"])
def test_memory_stress_runs_out_of_memory_without_a_budget(kind: str) -> None:
    result = under("published/memory_stress", kind, ("engine.encoder_cache_rows", "unbounded"))
    assert result.allocation_failures > 0
    assert set(result.requests["status"]) == {"finished", "failed"}
    reasons = set(result.requests["reason"]) - {""}
    assert reasons and all(reason.startswith("out of memory: encoding ") for reason in reasons)


def test_side_stream_shrinks_gaps_by_more_than_it_delays_first_tokens() -> None:
    turns, beside = (simulated("side_stream", ("engine.encoder_side_stream_max_ahead", ahead)) for ahead in (0, 1))
    assert beside.summary["p99_itl_ms"] < 0.7 * turns.summary["p99_itl_ms"]
    assert turns.summary["median_ttft_ms"] < beside.summary["median_ttft_ms"] < 1.2 * turns.summary["median_ttft_ms"]
    assert beside.summary["encoder_busy_fraction"] > turns.summary["encoder_busy_fraction"]


def test_disaggregated_trades_gaps_of_all_for_the_tail() -> None:
    pools = [{"prefill": {"engines": 2}}, {"encode": {}, "decode": {}, "link": {"gigabytes_per_second": 50}}]
    whole, three = (run(SCENARIOS / "disaggregated.yaml", {"pools": some}).summary for some in pools)
    apart = simulated("disaggregated").summary
    assert apart["p99_itl_ms"] < 0.55 * whole["p99_itl_ms"]
    assert whole["mean_tpot_ms"] < apart["mean_tpot_ms"] < 1.25 * whole["mean_tpot_ms"]
    assert whole["median_ttft_ms"] < apart["median_ttft_ms"] < 1.25 * whole["median_ttft_ms"]
    assert three["p99_itl_ms"] < 0.55 * apart["p99_itl_ms"] and three["transferred_kv_bytes"] > 0


def test_deadlock_stalls_wholly_under_fcfs() -> None:
    stalled = under("deadlock", "fcfs")
    assert (stalled.verdict, stalled.summary["completed"], stalled.summary["stalled"]) == ("stalled", 0, 3)


def test_deadlock_stalls_and_footprint_finishes() -> None:
    stalled, finished = under("deadlock", "head_of_line"), under("deadlock", "footprint")
    assert stalled.verdict == "stalled"
    assert stalled.requests["status"].tolist() == ["finished", "stalled", "stalled"]
    assert stalled.blockers.keys() == {1, 2} and "held by" in stalled.blockers[1] and "request 2" in stalled.blockers[1]
    assert finished.verdict == "finished" and set(finished.requests["status"]) == {"finished"}


@pytest.mark.parametrize("speedup", [1, 4])
def test_trace_replay_keeps_the_recorded_gaps(speedup: int) -> None:
    arrivals = simulated("trace_replay", ("workload.speedup", speedup)).requests["arrival"]
    assert len(arrivals) == 20
    assert arrivals.iloc[-1] == pytest.approx(39.8 / speedup)


def test_production_mix_has_the_published_marginals() -> None:
    """One image in four of five requests, 9 at p99, and the quantiles of image and answer tokens."""
    result = simulated("production_mix")
    scenario, counts = result.scenario, result.requests["num_items"]
    requests = scenario.workload.requests(seed=scenario.seed, model=scenario.model)
    embeds = sorted(item.embeds for request in requests for item in request.items)
    assert (counts == 1).mean() == pytest.approx(0.8, abs=0.05)
    assert counts.quantile(0.99) == pytest.approx(9, abs=1)
    assert [embeds[int(q * len(embeds))] for q in (0.5, 0.75, 0.9)] == pytest.approx([405, 1150, 1224], rel=0.05)
    assert result.requests["output_tokens"].median() == pytest.approx(100, rel=0.15)
