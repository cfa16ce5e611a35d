"""Encoder outputs replayed through the modelled allocator: the log of a run, its two storages, and what users see."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cli import app
from policies.encoder_cache import EncoderCache
from policies.plan import IterationPlan
from sim import Run, Scenario, run
from sim.allocator import MIB, AllocatorFigures
from sim.backend import AccountingBackend
from sim.memory_log import EncoderCall, Event, Forgotten, MemoryLog, most_rows
from sim.memory_replay import MEMORY_METRICS, Allocate, Free, MemorySizes, memory_figures, operations
from sim.run import serve
from sim.world import World, resolve
from sim.worlds import SideStreamWorld
from workloads.errors import InputError

TIGHT = Path(__file__).parent / "data" / "scenario.yaml"
ASKED = {"measure.allocator": True}
SIZES = MemorySizes(device=400 * MIB, weights=40 * MIB, kv=60 * MIB, encoder_token=MIB, row=MIB, num_rows=24)
EVENTS: list[Event] = [
    EncoderCall(30, ((0, 4), (1, 12))),
    Forgotten(0),
    EncoderCall(40, ((2, 20),)),
    Forgotten(1),
    Forgotten(2),
]


class WatchedLog(MemoryLog):
    """Looks at every launch whether the outputs that it takes for alive are those that the encoder cache has."""

    cache: EncoderCache
    num_looks = 0

    def launch(self, plan: IterationPlan, max_iterations: int, horizon: int) -> tuple[IterationPlan, Any]:
        new = sum(request.items[index].embeds for request, index in plan.encode)
        alive = [entry() for entry in self._alive]
        assert all(entry is not None and entry.rows is not None for entry in alive)
        assert sum(entry.num_rows for entry in alive if entry is not None) == self.cache.resident_rows - new
        self.num_looks += bool(plan.encode)
        return super().launch(plan, max_iterations, horizon)


class Watched(World):
    def _with_memory_log(self, backend: AccountingBackend) -> AccountingBackend:
        self.memory_log = WatchedLog(backend)
        self.memory_log.cache = self.state.cache
        return self.memory_log


class WatchedSideStream(Watched, SideStreamWorld):
    pass


def watched(kind: type[Watched], changes: dict[str, Any]) -> tuple[WatchedLog, Run]:
    checked = resolve(Scenario.load(TIGHT, changes))
    world = kind(checked.scenario, checked.profile)
    done = serve(world, [])
    assert isinstance(world.memory_log, WatchedLog) and world.memory_log.num_looks > 5
    return world.memory_log, done


@pytest.mark.parametrize("kind", ["unbudgeted", "head_of_line", "eager", "hf_rows", "sglang", "vllm", "trt_main"])
@pytest.mark.parametrize("reuse", [True, False])
def test_the_log_knows_which_outputs_are_there(kind: str, reuse: bool) -> None:
    tight = {"engine.encoder_cache_rows": 3000, "engine.encoder_cache_reuse": reuse, "workload.num_requests": 30}
    log, done = watched(Watched, {"policy.kind": kind, **tight})
    calls = [event for event in log.events if isinstance(event, EncoderCall)]
    assert sum(len(call.outputs) for call in calls) == done.summary["num_encodes"] > 0
    assert sum(call.encoder_tokens for call in calls) == done.summary["total_encoder_tokens"]
    gone = [event.output for event in log.events if isinstance(event, Forgotten)]
    assert len(set(gone)) == len(gone) and set(gone) <= {n for call in calls for n, _ in call.outputs}


def test_the_log_knows_of_outputs_in_flight() -> None:
    watched(WatchedSideStream, {"engine.encoder_side_stream_max_ahead": 2, "workload.num_requests": 30})


def test_what_failed_is_not_in_the_log() -> None:
    """A KV pool that leaves room for small batches only."""
    log, done = watched(Watched, {"engine.num_kv_blocks": 56_130, "workload.num_requests": 40})
    calls = [event for event in log.events if isinstance(event, EncoderCall)]
    assert done.allocation_failures > 0 and len(calls) > 0
    assert sum(len(call.outputs) for call in calls) < done.summary["num_encodes"] + done.requests["num_items"].sum()
    assert all(call.outputs for call in calls)


def test_most_rows() -> None:
    assert most_rows(EVENTS) == 12 + 20
    assert most_rows([]) == 0


def test_operations_of_one_tensor_an_item() -> None:
    """MiB by MiB: weights and KV, then of each call activations, its output, and a copy for each item."""
    done = [
        (o.name, o.num_bytes // MIB if isinstance(o, Allocate) else "free")
        for o in operations(EVENTS, SIZES, "per_item")
    ]
    first = [("activations", 30), ("batch", 16), ("activations", "free"), (0, 4), (1, 12), ("batch", "free")]
    second = [("activations", 40), ("batch", 20), ("activations", "free"), (2, 20), ("batch", "free")]
    gone = [(1, "free"), (2, "free")]
    assert done == [("weights", 40), ("kv", 60), *first, (0, "free"), *second, *gone]


def test_operations_of_static_rows() -> None:
    done = list(operations(EVENTS, SIZES, "rows"))
    assert done[:3] == [Allocate("weights", 40 * MIB), Allocate("kv", 60 * MIB), Allocate("rows", 24 * MIB)]
    assert [o.name for o in done[3:]] == ["activations", "batch", "activations", "batch"] * 2
    assert sum(isinstance(o, Free) for o in done) == 4


def test_figures_by_hand() -> None:
    """Sizes in MiB, segments in brackets, free pieces with a dot, a and b for activations and batch.

    per_item: [40] [60] [a 30] [b 16]; a goes, and 4 and 12 are cut from its segment; b and the 4 go, which leaves
    [.4 12 .14] [.16]. The next a, of 40, and b, of 20, find no room: [a 40] [b 20]. a goes, and 20 are cut from its
    segment, which traps 20 besides the 18 around the 12. In the end nothing is trapped.
    rows: [40] [60] [24] [a 30] [b 16]; then [a 40], and b, of 20, is cut from the free 30, which traps 10.
    """
    per_item, rows = memory_figures(EVENTS, SIZES).values()
    assert per_item == AllocatorFigures((100 + 30 + 16 + 40 + 20) * MIB, (100 + 12 + 40 + 20) * MIB, 38 * MIB, 6, 0, 0)
    assert rows == AllocatorFigures((124 + 30 + 16 + 40) * MIB, (124 + 40 + 20) * MIB, 10 * MIB, 6, 0, 0)


def test_without_room_tensors_are_left_out() -> None:
    """60 MiB are left beside weights and KV pool: enough for the first call, of which 12 MiB stay in a segment of 30.

    per_item: once 4 of the 30 are taken the other 26 are trapped. The next activations, 40, find no room even after
    the [16] went back; the batch gets a [20], and its copy no other.
    rows: no 100 for the rows themselves; then 30 and 16 go back for 40 and 20.
    """
    small = MemorySizes(device=160 * MIB, weights=40 * MIB, kv=60 * MIB, encoder_token=MIB, row=MIB, num_rows=100)
    per_item, rows = memory_figures(EVENTS, small).values()
    assert per_item == AllocatorFigures(150 * MIB, 146 * MIB, 26 * MIB, 5, 2, 2)
    assert rows == AllocatorFigures(160 * MIB, 160 * MIB, 0, 6, 2, 1)


def test_a_run_has_figures_of_both_storages() -> None:
    done = run(TIGHT, {**ASKED, "policy.kind": "fcfs"})
    assert done.memory is not None and all(name in done.summary for name in MEMORY_METRICS)
    per_item, rows = done.memory["per_item"], done.memory["rows"]
    static = done.profile.memory.weights.value + 2500 * 16 * done.scenario.model.kv_bytes_per_token
    assert per_item.peak_allocated_bytes > static
    assert rows.peak_allocated_bytes > static + 8192 * done.scenario.model.embedding_row_bytes
    assert per_item.peak_inactive_split_bytes > rows.peak_inactive_split_bytes
    assert done.summary["rows_device_allocations"] == rows.device_allocations


@pytest.mark.parametrize("kind", ["unbudgeted", "sglang"])
def test_without_a_budget_rows_are_as_many_as_the_run_had(kind: str) -> None:
    done = run(TIGHT, {**ASKED, "policy.kind": kind, "engine.encoder_cache_rows": 64 if kind == "sglang" else None})
    assert done.memory is not None and done.memory["rows"].out_of_memory_errors == 0
    model = done.scenario.model
    static = done.profile.memory.weights.value + 2500 * 16 * model.kv_bytes_per_token
    most = done.iterations["encoder_rows_resident"].max()
    assert done.memory["rows"].peak_allocated_bytes > static + most * model.embedding_row_bytes


@pytest.mark.parametrize("kind", ["fcfs", "hf_rows", "sglang"])
def test_asking_changes_nothing_else(kind: str) -> None:
    plain, asked = run(TIGHT, {"policy.kind": kind}), run(TIGHT, {**ASKED, "policy.kind": kind})
    assert plain.memory is None and not set(MEMORY_METRICS) & plain.summary.keys()
    assert plain.summary == {name: asked.summary[name] for name in plain.summary}
    assert plain.decisions == asked.decisions


def test_pools_are_refused() -> None:
    pools = {"prefill": {}, "decode": {}, "link": {"gigabytes_per_second": 50}}
    with pytest.raises(InputError, match=r"measure\.allocator: not with pools"):
        run(TIGHT, {**ASKED, "pools": pools})


def tandem(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_shows_both_beside_each_other(tmp_path: Path) -> None:
    sets = ["--set", "measure.allocator=true", "--set", "policy.kind=fcfs,eager"]
    lines = tandem("run", TIGHT, *sets, "--no-plots", "--out", tmp_path).splitlines()
    assert [line.split()[0] for line in lines if "static rows" in line and "per item" in line] == ["fcfs", "eager"]
    summary = json.loads((tmp_path / "fcfs" / "summary.json").read_text())
    (calls, _) = [line.split()[2:4] for line in lines if line.startswith("cudaMalloc calls")]
    assert calls == [str(summary[f"{storage}_device_allocations"]) for storage in ("per_item", "rows")]
    assert any(line.startswith("peak trapped") and line.endswith("%") for line in lines)


def test_a_live_run_tells_of_the_same_memory(tmp_path: Path) -> None:
    """The model's own clock gives the same plans."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="the live half needs it")
    sets = ["--set", "measure.allocator=true", "--set", "workload.num_requests=4", "--no-plots"]
    tiny = "scenarios/tiny_live.yaml"
    output = tandem("replay", tiny, *sets, "--clock", "model", "--out", tmp_path / "live")
    tandem("run", tmp_path / "live" / "scenario.yaml", "--no-plots", "--out", tmp_path / "simulated")
    live, simulated = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("live", "simulated"))
    assert {name: live[name] for name in MEMORY_METRICS} == {name: simulated[name] for name in MEMORY_METRICS}
    assert live["per_item_device_allocations"] > 0 and "cudaMalloc calls" in output


def test_published_changes_between_two_figures_of_one_run(tmp_path: Path) -> None:
    figure = {"metric": "rows_peak_inactive_split_bytes", "policy": "fcfs", "change_percent": -15}
    scenario = yaml.safe_load(TIGHT.read_text())
    against = "per_item_peak_inactive_split_bytes"
    scenario["published"] = {"source": "a paper", "figures": [{**figure, "against_metric": against}]}
    file = tmp_path / "published.yaml"
    file.write_text(yaml.safe_dump(scenario))
    sets = ["--set", "measure.allocator=true", "--set", "policy.kind=fcfs"]
    output = tandem("run", file, *sets, "--no-plots", "--out", tmp_path / "out")
    again = tandem("run", file, *sets, "--set", "seed=2", "--no-plots", "--out", tmp_path / "again")
    assert "simulated with seed=2, which the published figures do not have" in again
    (line,) = [line for line in output.splitlines() if "-15.0 %" in line]
    before, after = (
        json.loads((tmp_path / "out" / "summary.json").read_text())[n] for n in (against, figure["metric"])
    )
    assert f"{(after - before) / before * 100:+.1f} %" in line and f"fcfs against {against}" in line
    assert "which the published figures do not have" not in output


@pytest.mark.parametrize("extra", [{}, {"against": "eager", "against_metric": "completed"}])
def test_a_change_is_against_one_thing(extra: dict[str, str]) -> None:
    published = {"source": "us", "figures": [{"metric": "completed", "change_percent": 1.0, **extra}]}
    with pytest.raises(InputError, match="a change needs one of against and against_metric"):
        Scenario.load(TIGHT, {"published": published})
