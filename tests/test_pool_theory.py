"""Several engines against what must be equal to them, byte by byte, and against queueing theory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_queueing import close

from sim import Run, Scenario, run
from sim.profiles import REPOSITORY
from workloads.errors import InputError

INSTANT = {"gigabytes_per_second": 1e12}
ROOMY = {
    "num_kv_blocks": 20_000,
    "max_num_batched_tokens": 100_000,
    "encoder_max_num_items": 1000,
    "encoder_max_num_tokens": 1_000_000,
    "encoder_cache_rows": 100_000,
}


def profile(folder: Path, name: str, *free: str) -> str:
    """That of the H200, by its formula, with some of its coefficients 0; `host` is one of them here."""
    content = json.loads((REPOSITORY / "scenarios/profiles/h200/qwen3-vl-8b-sglang-tp1.json").read_text())
    del content["tables"]
    for coefficient in free:
        if coefficient == "host":
            content["corrections"]["host"]["value"] = 0.0
        else:
            content["coefficients"][coefficient]["value"] = 0.0
    if "E0" in free:
        content["corrections"]["encoder_offset"]["value"] = 0.0
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return str(path)


ENCODER = ("E0", "E1", "E2")
LANGUAGE = ("G0", "G1", "G2", "P0", "P1", "P2", "D0", "D1", "D2")


def served(count: int, arrivals: dict[str, Any], seed: int = 1, **sections: Any) -> Run:
    workload = {"kind": "synthetic", "num_requests": count, "arrivals": arrivals, "text_tokens": 100}
    content = {
        "seed": seed,
        "model": "qwen3-vl-8b",
        "profile": sections.pop("profile", "h200/qwen3-vl-8b"),
        "policy": {"kind": sections.pop("policy", "head_of_line")},
        "workload": workload | {"output_tokens": 20} | sections.pop("workload", {}),
        **sections,
    }
    return run(Scenario.model_validate(content))


IMAGES = {"images": {"count": {"kind": "uniform", "min": 0, "max": 3}, "size": "640x480"}}
ONE = {"images": {"count": 1, "size": "640x480"}, "output_tokens": 1}


@pytest.mark.parametrize("policy", ["unbudgeted", "fcfs", "head_of_line", "eager", "footprint"])
def test_one_engine_in_a_pool_is_one_engine(policy: str) -> None:
    arrivals = {"kind": "gamma", "rate": 20, "burstiness": 0.3}
    tight = {"max_num_seqs": 6, "max_num_batched_tokens": 600, "num_kv_blocks": 220, "encoder_cache_rows": 1500}
    alone = served(80, arrivals, policy=policy, workload=IMAGES, engine=tight)
    pooled = served(80, arrivals, policy=policy, workload=IMAGES, engine=tight, pools={})
    for one, other in ((alone.requests, pooled.requests), (alone.iterations, pooled.iterations)):
        pd.testing.assert_frame_equal(one.drop(columns="engine"), other.drop(columns="engine"), check_exact=True)
    assert {name: pooled.summary[name] for name in alone.summary if name != "link_busy_fraction"} == {
        name: alone.summary[name] for name in alone.summary if name != "link_busy_fraction"
    }
    assert set(pooled.requests["engine"]) == {"prefill-0"} and set(alone.requests["engine"]) == {"0"}


@pytest.mark.parametrize("policy", ["fcfs", "head_of_line", "footprint"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_free_encoder_behind_an_instant_link_is_no_encoder(policy: str, seed: int, tmp_path: Path) -> None:
    """E+PD with both free equals one engine whose encoding costs nothing, to the nanosecond."""
    free, no_time = profile(tmp_path, "free", *ENCODER), profile(tmp_path, "no_time", *ENCODER, "host")
    arrivals = {"kind": "gamma", "rate": 30, "burstiness": 0.3}
    pools = {"encode": {"profile": no_time}, "link": INSTANT}
    common: dict[str, Any] = {"policy": policy, "workload": IMAGES, "engine": ROOMY, "profile": free}
    alone, apart = served(120, arrivals, seed, **common), served(120, arrivals, seed, **common, pools=pools)
    for name in ("first_token", "finish", "output_tokens", "prefill"):
        assert alone.requests[name].tolist() == apart.requests[name].tolist()
    assert np.array_equal(np.sort(alone.itl), np.sort(apart.itl))
    assert apart.requests["engine"].str.startswith("encode-0>").any()
    # what counts as transfer is the wait for the receiver's next draft, which makes room
    waits = apart.requests[["queue_wait", "transfer"]].sum(axis=1) - alone.requests["queue_wait"]
    assert waits.abs().max() < 1e-9


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_an_encode_engine_is_an_m_d_1_queue(load: float, tmp_path: Path) -> None:
    """Poisson arrivals, one item an iteration, and nothing that takes time after it."""
    nothing = profile(tmp_path, "nothing", *ENCODER, *LANGUAGE, "host")
    pools = {"prefill": {"profile": nothing}, "encode": {"engine": {"max_num_seqs": 1}}, "link": INSTANT}
    alone = served(1, {"kind": "at_once"}, workload=ONE, pools=pools).requests.iloc[0]
    poisson = {"kind": "poisson", "rate": load / float(alone["ttft"])}
    runs = [served(1500, poisson, seed, workload=ONE, pools=pools, policy="fcfs") for seed in range(8)]
    waits = [float(r.requests["queue_wait"].mean()) for r in runs]
    close(waits, load / (2 * (1 - load)) * float(alone["ttft"]))
    busy = [r.summary["engine_busy_fraction"] * 2 for r in runs]  # of two engines, one of which takes no time
    assert np.mean(busy) == pytest.approx(load, rel=0.05)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_the_link_is_an_m_d_1_queue(load: float, tmp_path: Path) -> None:
    """300 rows of 32,768 bytes each; engines that take no time; the latency occupies nobody."""
    nothing = profile(tmp_path, "nothing", *ENCODER, *LANGUAGE, "host")
    num_bytes, latency = 300 * 32_768, 0.004
    service = num_bytes / 1e9
    pools = {"encode": {}, "link": {"gigabytes_per_second": 1.0, "latency_ms": latency * 1e3}}
    poisson = {"kind": "poisson", "rate": load / service}
    common: dict[str, Any] = {"workload": ONE, "pools": pools, "profile": nothing}
    runs = [served(1500, poisson, seed, **common) for seed in range(8)]
    assert {r.summary["transferred_embedding_bytes"] for r in runs} == {1500 * num_bytes}
    close([float(r.requests["transfer"].mean()) - latency for r in runs], service * (1 + load / (2 * (1 - load))))
    assert np.mean([r.summary["link_busy_fraction"] for r in runs]) == pytest.approx(load, rel=0.05)


def test_bytes_are_counted_to_the_last_one() -> None:
    """Rows of every image, 144 KiB of KV a token in whole blocks of 16; nothing is sent for one-token answers."""
    pools = {"encode": {}, "decode": {}, "link": {"gigabytes_per_second": 10, "latency_ms": 0.1}}
    answers = {"output_tokens": {"kind": "choice", "values": [1, 20]}}
    r = served(60, {"kind": "poisson", "rate": 10}, workload=IMAGES | answers, pools=pools)
    assert r.verdict == "finished"
    assert r.summary["transferred_embedding_bytes"] == r.requests["embeds"].sum() * 32_768
    sent = r.requests[r.requests["output_tokens"] > 1]
    assert r.summary["transferred_kv_bytes"] == (-(-sent["prompt_tokens"] // 16) * 16).sum() * 147_456
    assert sent["engine"].str.endswith(">decode-0").all()
    assert not r.requests.drop(sent.index)["engine"].str.contains("decode").any()


def test_what_the_receiver_has_is_not_sent_again() -> None:
    """Five pictures that all requests share: each is sent once, and encoded once."""
    shared = {"images": {"count": 5, "size": "640x480", "pool": {"size": 5, "draw": "all_in_order"}}}
    pools = {"encode": {}, "link": {"gigabytes_per_second": 10}}
    r = served(20, {"kind": "constant", "rate": 2}, workload=shared, pools=pools)
    assert r.summary["transferred_embedding_bytes"] == 5 * 300 * 32_768
    assert r.summary["num_encodes"] == 5 and r.summary["encoder_cache_hits"] == 95


def test_the_first_gap_of_an_answer_holds_the_transfer_of_its_kv() -> None:
    """1 GB/s: 104 tokens are 7 blocks of 16, so 16.5 ms, and 2 ms of latency."""
    pools = {"decode": {}, "link": {"gigabytes_per_second": 1, "latency_ms": 2}}
    r = served(1, {"kind": "at_once"}, workload={"text_tokens": 104, "output_tokens": 3}, pools=pools)
    decodes = r.iterations[r.iterations["num_decodes"] > 0]
    assert decodes["start"].iloc[0] - r.requests["first_token"].iloc[0] == pytest.approx(112 * 147_456 / 1e9 + 0.002)
    gaps = [decodes["end"].iloc[0] - r.requests["first_token"].iloc[0], decodes["end"].diff().iloc[1]]
    assert np.allclose(np.sort(r.itl), np.sort(gaps))
    assert r.iterations["engine"].tolist() == ["prefill-0", "decode-0", "decode-0"]


def test_a_full_decode_engine_holds_the_prefill_engine_back() -> None:
    """One answer at a time decodes; four prompts' KV fills the prefill engine; nobody is lost, all in order."""
    tight = {"num_kv_blocks": 28, "max_num_batched_tokens": 512}
    pools = {"decode": {"engine": {"max_num_seqs": 1}}, "prefill": {"engine": tight}, "link": INSTANT}
    r = served(12, {"kind": "at_once"}, pools=pools, workload={"output_tokens": 100}, engine={"num_kv_blocks": 500})
    assert set(r.requests["status"]) == {"finished"}
    assert r.requests["finish"].is_monotonic_increasing
    prefill = r.iterations[r.iterations["engine"] == "prefill-0"]
    assert prefill["kv_blocks_used"].max() == 28 and len(prefill) > 6
    assert r.requests["first_token"].iloc[5] > r.requests["finish"].iloc[0]
    decode = r.iterations[r.iterations["engine"] == "decode-0"]
    assert decode["num_decodes"].max() == 1


@pytest.mark.parametrize(("router", "ends"), [("round_robin", [3, 3]), ("least_loaded", [1, 5])])
def test_routers(router: str, ends: list[int]) -> None:
    """A long answer first; then short ones, each gone before the next comes."""
    clients = [client("long", 1, 5000, {"kind": "at_once"}), client("short", 5, 2, {"kind": "constant", "rate": 3})]
    content = {"model": "qwen3-vl-8b", "profile": "h200/qwen3-vl-8b", "policy": {"kind": "fcfs"}}
    content |= {"workload": {"kind": "mix", "clients": clients}}
    r = run(Scenario.model_validate(content | {"pools": {"prefill": {"engines": 2}, "router": router}}))
    assert sorted(r.requests["engine"].value_counts().tolist()) == ends


def client(name: str, count: int, output: int, arrivals: dict[str, Any]) -> dict[str, Any]:
    fields = {"num_requests": count, "text_tokens": 50, "output_tokens": output, "arrivals": arrivals}
    return {"name": name, **fields}


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ({"encode": {}}, "needs a link"),
        ({"link": INSTANT}, "only a prefill pool"),
        ({"prefill": {"engines": 0}}, "greater than or equal to 1"),
        ({"decode": {"engine": {"capacity": "max_utilization"}}, "link": INSTANT}, "set it to no_evict"),
        ({"prefill": {"engine": {"max_num_seqs": 9000}}}, "must be at least max_num_seqs"),
        ({"prefill": {"engine": {"encoder_side_stream_max_ahead": 1}}}, "no side stream"),
        ({"encode": {"profile": "h200/none"}, "link": INSTANT}, "no profile 'h200/none'"),
        ({"link": {"gigabytes_per_second": 0}, "decode": {}}, "greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused(pools: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        served(1, {"kind": "at_once"}, pools=pools)


def test_the_executor_refuses_them_by_name() -> None:
    prepare = pytest.importorskip("executor.prepare")
    scenario = served(1, {"kind": "at_once"}, pools={}).scenario
    with pytest.raises(InputError, match="pools: the executor is one engine"):
        prepare.prepare(scenario, None, None)


def test_a_request_that_some_pool_can_never_serve_is_rejected_at_once() -> None:
    pools = {"encode": {}, "decode": {"engine": {"num_kv_blocks": 10}}, "link": INSTANT}
    r = served(3, {"kind": "at_once"}, workload=IMAGES | {"output_tokens": 200}, pools=pools)
    assert set(r.requests["status"]) == {"rejected"} and r.summary["num_encodes"] == 0
    assert r.requests["reason"].str.contains("pools.decode.engine.num_kv_blocks").all()


def test_a_resolved_scenario_runs_to_the_same_tables() -> None:
    pools = {"encode": {"engine": {"max_num_seqs": 4}}, "decode": {}, "link": {"gigabytes_per_second": 5}}
    r = served(30, {"kind": "poisson", "rate": 10}, workload=IMAGES, pools=pools)
    again = run(r.scenario)
    assert again.scenario == r.scenario and again.decisions == r.decisions
    pd.testing.assert_frame_equal(again.requests, r.requests, check_exact=True)
    pd.testing.assert_frame_equal(again.iterations, r.iterations, check_exact=True)
