"""Traces: each format read, the window and speed-up, our own format there and back, and errors that name the line."""

import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import MODELS, AnyWorkload, InputError, MultimodalItem, Request, write_jsonl
from workloads.servegen_files import read_windows
from workloads.trace import check

decode = TypeAdapter(AnyWorkload).validate_python
DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("TANDEM_TRACES", Path(__file__).parents[2] / "shared" / "data"))
MODEL = MODELS["qwen3-vl-8b"]
MS = 1_000_000


def requests(kind, path, model=MODEL, seed=1, **options):
    return list(decode({"kind": kind, "path": str(path), **options}).requests(seed=seed, model=model))


def failure(kind, path, **options):
    with pytest.raises(InputError) as caught:
        requests(kind, path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_azure():
    assert requests("azure", DATA / "azure_text.csv") == [
        Request(0, 0, 374, 44),
        Request(1, 749_999_900, 12, 1),  # a tenth of a microsecond counts
        Request(2, 2_499_999_900, 800, 7),
    ]


@pytest.mark.parametrize(("context", "prompts"), [("text", [70, 900 + 2 * 770, 640 + 770]), ("total", [70, 1540, 770])])
def test_azure_with_images(context, prompts):
    trace = {"path": DATA / "azure_images.csv", "image_size": "1024x768", "context_tokens": context}
    drawn = requests("azure", **trace)
    assert [request.prompt_tokens for request in drawn] == prompts
    assert [len(request.items) for request in drawn] == [0, 2, 1]
    assert [request.arrival for request in drawn] == [0, 750 * MS, 875 * MS]
    keys = [item.key for request in drawn for item in request.items]
    assert len(set(keys)) == 3
    assert decode({"kind": "azure", **trace}).largest_item(seed=1, model=MODEL) == drawn[1].items[0]
    for request in drawn:
        check(request)


def test_mooncake():
    assert requests("mooncake", DATA / "mooncake.jsonl") == [
        Request(0, 0, 1300, 50, (), (0, 1, 2)),
        Request(1, 40 * MS, 600, 9, (), (0, 7)),
        Request(2, 3000 * MS, 20, 2),
    ]


def test_window_speedup_and_limit():
    def arrivals(**options):
        return [(r.id, r.arrival) for r in requests("mooncake", DATA / "mooncake.jsonl", **options)]

    assert arrivals(speedup=2) == [(0, 0), (1, 20 * MS), (2, 1500 * MS)]
    assert arrivals(speedup=0.5) == [(0, 0), (1, 80 * MS), (2, 6000 * MS)]
    assert arrivals(start=0.04) == [(0, 0), (1, 2960 * MS)]
    assert arrivals(start=0.02, end=3, speedup=4) == [(0, 5 * MS)]
    assert arrivals(limit=2) == [(0, 0), (1, 40 * MS)]
    assert arrivals(end=3.5) == arrivals()


def test_a_relative_path_starts_at_the_scenario():
    load = TypeAdapter(AnyWorkload).validate_python(
        {"kind": "mooncake", "path": "mooncake.jsonl"}, context={"base": DATA}
    )
    assert load.path == DATA / "mooncake.jsonl" and len(list(load.requests(seed=1, model=MODEL))) == 3
    absolute = {"kind": "mooncake", "path": str(DATA / "mooncake.jsonl")}
    assert TypeAdapter(AnyWorkload).validate_python(absolute, context={"base": "/nowhere"}).path == load.path


def test_traces_are_open_loops_of_unknown_length():
    trace = decode({"kind": "mooncake", "path": str(DATA / "mooncake.jsonl")})
    assert trace.closed_loop is None and trace.num_requests is None
    assert trace.largest_item(seed=1, model=MODEL) is None


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("kind", "lines", "message"),
    [
        ("azure", HEADER + "2023-11-16 18:15:46,5,5\nyesterday,5,5", ":3: not a timestamp: 'yesterday'"),
        ("azure", HEADER + "2023-11-16 18:15:46,5", ":2: 2 values for 3 columns"),
        ("azure", HEADER + "2023-11-16 18:15:46,x,5", ":2: not a whole number: 'x'"),
        ("azure", HEADER + "2023-11-16 18:15:46,5,0", ":2: prompt and output need at least one token"),
        ("azure", HEADER + "2023-11-16 18:15:46,5,5\n2023-11-16 18:15:45,5,5",
         ":3: arrives before the line above"),
        ("azure", HEADER + "2023-13-16 18:15:46,5,5", ":2: month must be in 1..12"),
        ("azure", "TIMESTAMP,GeneratedTokens\n2023-11-16 18:15:46,5", ":1: no column ContextTokens"),
        ("azure", "NumImages," + HEADER + "1,2023-11-16 18:15:46,5,5", "no sizes; give workload.image_size"),
        ("azure", HEADER + "2023-11-16 18:15:46,5," + "5" * 200_000, ":2: field larger than field limit"),
        ("azure", "x" * 200_000, ":1: field larger than field limit"),
        ("azure", "ContextTokens," + HEADER + "5,2023-11-16 18:15:46,5,5", ":1: column ContextTokens stands twice"),
        ("azure", HEADER, ": no requests"),
        ("azure", "", ": no requests"),
        ("mooncake", '{"timestamp": 0, "input_length": 5, "output_length": 5}\n{"timestamp": 0, "inp', ":2: "),
        ("mooncake", '\n\n{"timestamp": 0, "input_length": 5}', ":3: no field output_length"),
        ("mooncake", '{"timestamp": 0, "input_length": -5, "output_length": 5}', ":1: not a whole number: -5"),
        ("mooncake", '{"timestamp": NaN, "input_length": 5, "output_length": 5}', ":1: "),
        ("mooncake", '{"timestamp": Infinity, "input_length": 5, "output_length": 5}', ":1: "),
        ("mooncake", '{"timestamp": null, "input_length": 5, "output_length": 5}', ":1: "),
        ("mooncake", '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": 7}', "must be a list of"),
        ("mooncake", '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": "12"}', "must be a list of"),
        ("mooncake", "[1]", ":1: not a JSON object"),
        ("mooncake", "[" * 100_000, ":1: "),
        ("mooncake", '{"timestamp": 1e300, "input_length": 5, "output_length": 5}', ":1: arrives more than 146 years"),
        ("mooncake", f'{{"timestamp": 0, "input_length": {10**30}, "output_length": 5}}', ":1: prompt and output have"),
        ("azure", HEADER + "0001-01-01 00:00:00,5,5\n9999-01-01 00:00:00,5,5", ":3: arrives more than 146 years"),
        ("jsonl", '{"id": 0, "arrival": 0, "prompt_tokens": 5}', ":1: output_tokens: Field required"),
        ("jsonl", '{"id": 0, "arrival": -1, "prompt_tokens": 5, "output_tokens": 5}', ":1: arrival -1 is negative"),
        (
            "jsonl",
            '{"id": 0, "arrival": 0, "prompt_tokens": 5, "output_tokens": 5, "priority": 1000001}',
            ":1: priority 1000001: none is beyond 1000000 either way",
        ),
        ("jsonl", "[0, 0, 5, 5, [], [-1]]", ":1: a block hash is 0 to 2**64 - 1"),
        ("jsonl", "[0, 0, 5, 5, [], [1], 0, 0]", ":1: a block hash is 0 to 2**64 - 1, and stands for at least one"),
        ("mooncake", f'{{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [{2**64}]}}', ":1: a blo"),
        ("jsonl", "{", ":1: Invalid JSON"),
        ("jsonl", "", ": no requests"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_one_line_with_its_place(tmp_path, kind, lines, message):
    path = tmp_path / "trace"
    path.write_text(lines)
    assert failure(kind, path).startswith(str(path))
    assert message in failure(kind, path)


def test_a_line_with_more_images_than_a_request_has(tmp_path):
    (tmp_path / "trace").write_text(f"{HEADER.strip()},NumImages\n2023-11-16 18:15:46,5,5,{10**18}")
    assert ":2: 1000000000000000000 images; a request has at most" in failure(
        "azure", tmp_path / "trace", image_size="64x64"
    )


def test_a_replay_too_slow_for_the_clock(tmp_path):
    write_jsonl(tmp_path / "r.jsonl", [Request(0, 0, 5, 5), Request(1, 10**16, 5, 5)])
    assert failure("jsonl", tmp_path / "r.jsonl", speedup=1e-6).endswith("past 146 years with speedup 1e-06")
    assert requests("jsonl", tmp_path / "r.jsonl", speedup=1e6)[1].arrival == 10**10


@pytest.mark.parametrize("kind", ["azure", "mooncake", "jsonl", "servegen"])
def test_a_missing_file_is_named(tmp_path, kind):
    assert failure(kind, tmp_path / "nothing").lower().startswith(f"{tmp_path / 'nothing'}: no ".lower())


def test_binary_and_folders_are_no_traces(tmp_path):
    (tmp_path / "trace").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in failure("mooncake", tmp_path / "trace")
    assert "directory" in failure("mooncake", tmp_path)
    (tmp_path / "trace").write_bytes(HEADER.encode() + b"2023-11-16 18:15:46,5,5\n\xe9\n")
    assert failure("azure", tmp_path / "trace") == f"{tmp_path / 'trace'}:3: not a text file in UTF-8"


def test_a_window_without_requests():
    assert "no requests in the window" in failure("mooncake", DATA / "mooncake.jsonl", start=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speedup": 0}, "greater than or equal to 0.000001"),
        ({"speedup": 1e-9}, "greater than or equal to 0.000001"),
        ({"speedup": 1e300}, "less than or equal to 1000000"),
        ({"start": 1e300}, "less than or equal to 4611686018"),
        ({"end": 1e300}, "less than or equal to 4611686018"),
        ({"limit": 10**30}, "less than or equal to 1000000000"),
        ({"speedup": math.inf}, "finite"),
        ({"start": 5, "end": 5}, "end 5 must be after start 5"),
        ({"limit": 0}, "greater than 0"),
        ({"hash_ids": 1}, "Extra"),
        ({"path": "a\0b"}, "no NUL character"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValidationError, match=message):
        requests(**{"kind": "mooncake", "path": DATA / "mooncake.jsonl"} | options)


def test_servegen_rates_and_fields():
    drawn = requests("servegen", DATA / "servegen", clients=[0], seed=3)
    arrivals = np.array([request.arrival for request in drawn]) / 1e9
    assert (np.diff(arrivals) >= 0).all()
    assert (arrivals < 600).sum() == pytest.approx(1200, rel=0.1)
    assert not ((arrivals >= 600) & (arrivals < 1200)).any()
    assert ((arrivals >= 1200) & (arrivals < 1800)).sum() == pytest.approx(600, rel=0.25)
    first, later = [r for r in drawn if r.arrival < 600e9], [r for r in drawn if r.arrival >= 1200e9]
    waits = np.diff([request.arrival for request in first])
    assert waits.std() / waits.mean() == pytest.approx(0.5, rel=0.1)  # Gamma of shape 4
    assert {len(r.items) for r in first} == {1} and {len(r.items) for r in later} == {0, 3}
    assert {r.items[0].embeds for r in first} == {525, 1222}
    assert {r.prompt_tokens - r.items[0].embeds - 2 for r in first} == {100, 200}
    assert {r.output_tokens for r in later} == {1, 4}  # an answer has at least one token
    for request in drawn:
        check(request)


def test_servegen_clients_are_merged_and_independent():
    both, one = requests("servegen", DATA / "servegen"), requests("servegen", DATA / "servegen", clients=[3])
    assert [request.id for request in both] == list(range(len(both)))
    arrivals = [request.arrival for request in both]
    assert arrivals == sorted(arrivals) and {r.arrival for r in one} <= set(arrivals)
    assert {len(request.items) for request in one} == {0}  # its images have no tokens
    keys = [item.key for request in both for item in request.items]
    assert len(keys) == len(set(keys))
    assert both == requests("servegen", DATA / "servegen") != requests("servegen", DATA / "servegen", seed=2)


def test_servegen_rate_stays_when_gaps_are_longer_than_windows(tmp_path):
    rows = [f"{600 * window},0.001,2.0,Gamma,0.25,4000" for window in range(3000)]
    (tmp_path / "chunk-5-trace.csv").write_text("\n".join(rows))
    (tmp_path / "chunk-5-dataset.json").write_text((DATA / "servegen" / "chunk-3-dataset.json").read_text())
    assert len(requests("servegen", tmp_path)) == pytest.approx(0.001 * 600 * 3000, rel=0.15)


def test_the_largest_servegen_item_comes_from_the_distributions():
    trace = decode({"kind": "servegen", "path": str(DATA / "servegen"), "end": 0.001})
    assert trace.largest_item(seed=1, model=MODEL).embeds == 1222
    only = decode({"kind": "servegen", "path": str(DATA / "servegen"), "clients": [3]})
    assert only.largest_item(seed=1, model=MODEL) is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("chunk-0-trace.csv", "0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1", "chunk-0-trace.csv:2: "),
        ("chunk-0-trace.csv", "0,1,1,Gamma,1", "chunk-0-trace.csv:1: "),
        ("chunk-0-trace.csv", "0,-1,1,Gamma,1,1", "not negative"),
        ("chunk-0-trace.csv", "0,1,1,Pareto,1,1", "Pareto"),
        ("chunk-0-trace.csv", "0,1,1,Gamma,0,1", "shape 0"),
        ("chunk-0-trace.csv", "0,1e300,1,Gamma,1,1", "requests/s, got 0 and 1e+300"),
        ("chunk-0-trace.csv", "1e300,1,1,Gamma,1,1", "requests/s, got 1e+300 and 1"),
        ("chunk-0-dataset.json", "[" * 100_000, "not a ServeGen dataset"),
        ("chunk-0-dataset.json", "{", "chunk-0-dataset.json: not a ServeGen dataset"),
        ("chunk-0-dataset.json", "[]", "not a ServeGen dataset"),
        ("chunk-0-dataset.json", "{}", "no distributions"),
        ("chunk-0-dataset.json", '{"0": {"text_tokens": "{1: 1}"}}', "no field 'image_count'"),
        ("chunk-0-dataset.json", '{"0": {"text_tokens": "{1: -1}"}}', "(text_tokens: Input should be greater than"),
        ("chunk-0-dataset.json", '{"0": {"text_tokens": "{1: "}}', "(text_tokens: "),
        ("chunk-0-trace.csv", "0,1,1,Gamma,1," + "1" * 200_000, "chunk-0-trace.csv:1: field larger"),
    ],
)
def test_bad_servegen_files(tmp_path, name, text, message):
    for source in (DATA / "servegen").glob("chunk-0-*"):
        (tmp_path / source.name).write_text(source.read_text())
    (tmp_path / name).write_text(text)
    assert message in failure("servegen", tmp_path)


def test_servegen_bursts_of_a_million(tmp_path):
    (tmp_path / "chunk-5-trace.csv").write_text("0,1,1000,Gamma,1e-6,1")
    start = time.perf_counter()
    window = next(read_windows(tmp_path / "chunk-5-trace.csv"))
    window.times(0.0, np.random.default_rng(1))
    assert time.perf_counter() - start < 2


def test_files_beside_those_of_servegen_clients_are_left_alone(tmp_path):
    (tmp_path / "chunk-1x-trace.csv").touch()
    assert "no folder with chunk-<client>-trace.csv files" in failure("servegen", tmp_path)


def test_unknown_servegen_client():
    assert failure("servegen", DATA / "servegen", clients=[1]).endswith("no client 1; there are 0 to 3")


@st.composite
def recorded(draw):
    """Requests as a workload gives them: numbered, in time order, with items that fit."""
    arrivals = sorted(draw(st.lists(st.integers(0, 2**62), min_size=1, max_size=5)))
    return [draw(request_at(id, arrival)) for id, arrival in enumerate(arrivals)]


@st.composite
def request_at(draw, id, arrival):
    end, items = draw(st.integers(0, 9)), []
    for _ in range(draw(st.integers(0, 3))):
        grid = tuple(draw(st.tuples(*[st.integers(1, 9)] * 3)))
        embeds = draw(st.integers(1, 99))
        length = embeds + draw(st.integers(0, 9))
        key, modality = draw(st.none() | st.text('aé☃/"\n\0', max_size=8)), draw(st.sampled_from(["image", "video"]))
        items.append(
            MultimodalItem(key, modality, grid, end, length, math.prod(grid), embeds, draw(st.integers(0, 10**9)))
        )
        end += length + draw(st.integers(0, 9))
    hashes = tuple(draw(st.lists(st.integers(0, 2**63), max_size=3)))
    lengths, priority = (end + draw(st.integers(1, 9)), draw(st.integers(1, 99))), draw(st.integers(-(10**6), 10**6))
    return Request(id, arrival, *lengths, tuple(items), hashes, priority)


@given(recorded())
def test_our_own_format_reads_back_identical(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("jsonl") / "requests.jsonl"
    write_jsonl(path, written)
    assert requests("jsonl", path) == written


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "requests.jsonl"
    write_jsonl(path, [Request(0, 0, 5, 5)])

    def broken():
        yield Request(0, 0, 6, 6)
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_jsonl(path, broken())
    assert [entry.name for entry in tmp_path.iterdir()] == ["requests.jsonl"]
    assert requests("jsonl", path) == [Request(0, 0, 5, 5)]


ITEM = MultimodalItem("k", "image", (1, 4, 4), 1, 4, 16, 4, 100)


@pytest.mark.parametrize(
    "items",
    [
        (ITEM._replace(offset=7),),
        (ITEM, ITEM._replace(offset=4)),
        (ITEM._replace(embeds=5),),
        (ITEM._replace(embeds=0),),
        (ITEM._replace(encoder_tokens=15),),
        (ITEM._replace(grid=(-1, -4, 4)),),
        (ITEM._replace(pixels=-1),),
        (ITEM._replace(pixels=10**30),),
        (ITEM._replace(offset=-1),),
    ],
)
def test_items_that_do_not_fit_are_refused(tmp_path, items):
    write_jsonl(tmp_path / "r.jsonl", [Request(0, 0, 10, 1, items)])
    assert "r.jsonl:1: item at" in failure("jsonl", tmp_path / "r.jsonl")


def public(name):
    path = PUBLIC / name
    return pytest.param(path, marks=pytest.mark.skipif(not path.exists(), reason=f"{name} is not here"))


@pytest.mark.parametrize("path", [public("azure/AzureLLMInferenceTrace_code.csv")])
def test_the_public_azure_trace(path):
    drawn = requests("azure", path)
    assert len(drawn) == 8819 and drawn[0].prompt_tokens == 4808 and drawn[0].output_tokens == 10


@pytest.mark.parametrize("path", [public("azure/AzureLMMInferenceTrace_multimodal_head5_tail5.csv")])
def test_the_public_azure_multimodal_rows(path):
    drawn = requests("azure", path, image_size="512x512")
    assert [len(request.items) for request in drawn] == [0, 1, 1, 0, 1, 16, 1, 1, 1, 0]
    assert drawn[1].arrival == 5_550 * MS


@pytest.mark.parametrize("path", [public("mooncake/conversation_trace.jsonl")])
def test_the_public_mooncake_trace(path):
    drawn = requests("mooncake", path, end=600)
    assert drawn[0].block_hashes == tuple(range(14)) and drawn[-1].arrival < 600e9


@pytest.mark.parametrize("path", [public("servegen/multimodal")])
def test_the_public_servegen_clients(path):
    """Rates: sum over the clients' lines. With a CV of up to 15 the counts of ten minutes scatter by some 6 %."""
    drawn = requests("servegen", path, end=1200)
    early = sum(request.arrival < 600e9 for request in drawn)
    assert early / 600 == pytest.approx(5.558, rel=0.15)
    assert (len(drawn) - early) / 600 == pytest.approx(4.945, rel=0.15)
    assert decode({"kind": "servegen", "path": str(path)}).largest_item(seed=1, model=MODEL).embeds == 1280
