"""Synthetic workloads and mixes: lengths, places and keys of images, independent draws, laziness, errors."""

import itertools
import time
import tracemalloc
from collections import Counter

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import MODELS, AnyWorkload, InputError
from workloads.trace import check

decode = TypeAdapter(AnyWorkload).validate_python
MODEL = MODELS["qwen3-vl-8b"]
BASE = """
kind: synthetic
num_requests: 200
arrivals: {kind: poisson, rate: 5}
text_tokens: {kind: lognormal, mean: 300, sigma: 0.8, max: 4000}
output_tokens: {kind: uniform, min: 5, max: 50}
"""
IMAGES = """
images:
  count: {kind: uniform, min: 0, max: 4}
  size: {kind: choice, values: [512x512, 1024x768, 1408x1408]}
"""


def workload(text, **changes):
    return decode({**yaml.safe_load(text), **changes})


def requests(text, seed=1, **changes):
    return list(workload(text, **changes).requests(seed=seed, model=MODEL))


def test_text_requests():
    drawn = requests(BASE)
    assert [request.id for request in drawn] == list(range(200))
    assert all(not request.items and 1 <= request.prompt_tokens <= 4000 for request in drawn)
    assert all(5 <= request.output_tokens <= 50 for request in drawn)
    assert 30 < drawn[-1].arrival / 1e9 < 55


@pytest.mark.parametrize("placement", ["front", "spread"])
def test_items_and_prompts_go_together(placement):
    for request in requests(BASE + IMAGES, placement=placement):
        check(request)
        text = request.prompt_tokens - sum(item.embeds + 2 for item in request.items)
        assert text >= 1
        gaps = [
            after.offset - 1 - (before.offset + before.length + 1)
            for before, after in itertools.pairwise(request.items)
        ]
        if placement == "front":
            assert all(item.offset == 1 for item in request.items[:1]) and not any(gaps)
        elif request.items:
            parts = [request.items[0].offset - 1, *gaps]
            assert all(abs(part - text / (len(request.items) + 1)) < 1 for part in parts)


def test_the_same_seed_gives_the_same_requests_and_another_gives_others():
    assert requests(BASE + IMAGES) == requests(BASE + IMAGES)
    assert requests(BASE + IMAGES)[0] != requests(BASE + IMAGES, seed=2)[0]
    keys = {item.key for request in requests(BASE + IMAGES) for item in request.items}
    assert not keys & {item.key for request in requests(BASE + IMAGES, seed=2) for item in request.items}


def test_changing_one_distribution_leaves_the_other_draws_alone():
    plain = requests(BASE + IMAGES)
    for name, value in (
        ("arrivals", {"kind": "gamma", "rate": 3, "burstiness": 0.2}),
        ("text_tokens", 7),
        ("output_tokens", {"kind": "lognormal", "median": 30, "sigma": 1, "max": 500}),
    ):
        changed = requests(BASE + IMAGES, **{name: value})
        columns = {
            "arrivals": lambda request: request.arrival,
            "text_tokens": lambda request: request.prompt_tokens - sum(item.embeds + 2 for item in request.items),
            "output_tokens": lambda request: request.output_tokens,
            "images": lambda request: request.items,
        }
        for column, read in columns.items():
            assert (list(map(read, plain)) == list(map(read, changed))) == (column != name)


def test_more_requests_begin_with_the_same_ones():
    assert requests(BASE + IMAGES, num_requests=5000)[:200] == requests(BASE + IMAGES)


def test_unique_images_have_unique_keys():
    drawn = requests(BASE + IMAGES, num_requests=5000)
    keys = [item.key for request in drawn for item in request.items]
    assert len(keys) == len(set(keys)) > 5000


def test_two_groups_and_videos_never_share_keys():
    group = {"size": "512x512", "count": 2}
    video = {"modality": "video", "frames": {"kind": "uniform", "min": 4, "max": 16}, "size": "320x240"}
    drawn = requests(BASE, images=[group, group, video, {**video, "pool": {"size": 3}}])
    for request in drawn:
        assert [item.modality for item in request.items] == ["image"] * 4 + ["video"] * 2
        assert all(2 <= item.grid[0] <= 8 for item in request.items[4:])
    keys = [item.key for request in drawn for item in request.items[:5]]
    assert len(set(keys)) == 5 * 200
    assert not set(keys) & {request.items[5].key for request in drawn}
    assert len({request.items[5].key for request in drawn}) == 3


def test_a_pool_repeats_its_pictures():
    drawn = requests(
        BASE, images={"count": 2, "size": {"kind": "choice", "values": ["256x256", "512x512"]}, "pool": {"size": 6}}
    )
    pictures = {(item.key, item.grid) for request in drawn for item in request.items}
    assert len(pictures) == len({key for key, _ in pictures}) == 6  # one key, one size
    assert len({grid for _, grid in pictures}) == 2


def test_the_pictures_of_a_pool_depend_on_neither_its_size_nor_the_order_of_use():
    images = {"count": 100, "size": {"kind": "choice", "values": ["256x256", "512x512"]}}
    pools = {"size": 100}, {"size": 100, "draw": "all_in_order"}, {"size": 1000, "draw": "all_in_order"}
    at_random, in_order, of_more = (
        {item.key: item.grid for request in requests(BASE, num_requests=20, images={**images, "pool": pool})
         for item in request.items}
        for pool in pools
    )  # fmt: skip
    assert at_random == in_order == of_more and len(in_order) == 100


def test_a_huge_pool_costs_nothing():
    start = time.perf_counter()
    drawn = requests(BASE, num_requests=20, images={"size": "64x64", "count": 2, "pool": {"size": 1_000_000_000}})
    assert len({item.key for request in drawn for item in request.items}) == 40
    assert time.perf_counter() - start < 1


def test_three_shared_and_one_unique():
    shared = {"count": 3, "size": "1408x1408", "pool": {"size": 3, "draw": "all_in_order"}}
    drawn = requests(BASE, images=[shared, {"size": "1408x1408"}])
    assert len({tuple(item.key for item in request.items[:3]) for request in drawn}) == 1
    assert len({request.items[3].key for request in drawn}) == 200
    assert [item.embeds for item in drawn[0].items] == [1936] * 4


def test_all_in_order_takes_the_first_ones():
    drawn = requests(BASE, images={"count": {"kind": "uniform", "min": 0, "max": 3}, "size": "64x64",
                                   "pool": {"size": 5, "draw": "all_in_order"}})  # fmt: skip
    longest = max((request.items for request in drawn), key=len)
    keys = [item.key for item in longest]
    assert all([item.key for item in request.items] == keys[: len(request.items)] for request in drawn)


@pytest.mark.parametrize("pool", [None, {"size": 4}])
def test_without_content_keys(pool):
    drawn = requests(BASE, images={"size": "512x512", "pool": pool, "content_keys": False})
    assert {item.key for request in drawn for item in request.items} == {None}


def test_a_closed_loop_leaves_arrivals_to_the_client():
    closed = workload(BASE, arrivals={"kind": "concurrency", "users": 8})
    assert closed.closed_loop.users == 8 and workload(BASE).closed_loop is None
    assert {request.arrival for request in closed.requests(seed=1, model=MODEL)} == {0}


def test_the_largest_item_comes_from_the_bounds():
    assert workload(BASE).largest_item(seed=1, model=MODEL) is None
    assert workload(BASE + IMAGES).largest_item(seed=1, model=MODEL).embeds == 1936
    rare = {"count": 1, "size": {"kind": "choice", "values": ["512x512", "2048x2048"], "weights": [1, 1e-12]}}
    assert workload(BASE, images=rare).largest_item(seed=1, model=MODEL).embeds == 4096
    video = {"modality": "video", "frames": {"kind": "uniform", "min": 1, "max": 9}, "size": "512x512"}
    largest = workload(BASE, images=[rare, video]).largest_item(seed=1, model=MODEL)
    assert (largest.modality, largest.embeds) == ("image", 4096)
    assert workload(BASE, images={**rare, "count": 0}).largest_item(seed=1, model=MODEL) is None
    limited = MODEL.model_copy(update={"max_pixels": 1_003_520})
    assert workload(BASE, images=rare).largest_item(seed=1, model=limited).embeds == 961


@given(st.integers(0, 2**63), st.integers(0, 6), st.integers(1, 2000), st.integers(1, 2000))
def test_any_images_make_a_valid_request(seed, count, width, height):
    if max(width, height) > 200 * min(width, height):
        width = height
    images = {"count": count, "size": [width, height]}
    (request,) = requests(BASE, seed=seed, num_requests=1, images=images, placement="spread")
    check(request)
    assert len(request.items) == count and all(item.pixels == width * height for item in request.items)


def test_a_million_requests_are_never_all_in_memory():
    load = workload(BASE + IMAGES, num_requests=1_000_000)
    tracemalloc.start()
    for _ in itertools.islice(load.requests(seed=1, model=MODEL), 20_000):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_text_requests_are_cheap():
    load = workload(BASE, num_requests=100_000)
    best = min(_seconds(load) for _ in range(3))
    assert best < 100_000 * 10e-6  # about 1 microsecond each; ten leave room for a busy machine


def _seconds(load):
    start = time.perf_counter()
    for _ in load.requests(seed=1, model=MODEL):
        pass
    return time.perf_counter() - start


def client(name, **changes):
    return {"name": name, **{key: value for key, value in yaml.safe_load(BASE).items() if key != "kind"}, **changes}


def test_a_mix_merges_by_arrival():
    mix = decode({"kind": "mix", "clients": [client("a"), client("b", output_tokens=99, images={"size": "1024x1024"})]})
    merged = list(mix.requests(seed=1, model=MODEL))
    assert mix.num_requests == 400 == len(merged) and mix.closed_loop is None
    assert [request.id for request in merged] == list(range(400))
    assert [request.arrival for request in merged] == sorted(request.arrival for request in merged)
    assert sum(request.output_tokens == 99 and len(request.items) == 1 for request in merged) == 200
    assert mix.largest_item(seed=1, model=MODEL).embeds == 1024


def test_every_client_has_its_priority():
    mix = decode(
        {"kind": "mix", "clients": [client("a", priority=3), client("b", images={"size": "64x64"}), client("c")]}
    )
    values = Counter(request.priority for request in mix.requests(seed=1, model=MODEL))
    assert values == {3: 200, 0: 400}


def test_clients_of_a_mix_draw_apart_and_ties_go_by_their_order():
    mix = decode({"kind": "mix", "clients": [client("a"), client("b")]})
    arrivals = [request.arrival for request in mix.requests(seed=1, model=MODEL)]
    assert len(set(arrivals)) == 400
    at_once = {"arrivals": {"kind": "at_once"}}
    tied = decode(
        {"kind": "mix", "clients": [client("b", output_tokens=5, **at_once), client("a", output_tokens=6, **at_once)]}
    )
    outputs = [request.output_tokens for request in tied.requests(seed=1, model=MODEL)]
    assert outputs == [5] * 200 + [6] * 200


@pytest.mark.parametrize("text", [BASE, BASE + IMAGES])
def test_yaml_round_trips(text):
    load = workload(text)
    assert decode(load.model_dump(mode="json")) == load


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_requests": 0}, "greater than 0"),
        ({"output_tokens": 0}, "at least one token"),
        ({"text_tokens": 0}, "at least one token"),
        (
            {"text_tokens": 0, "images": {"size": "64x64", "count": {"kind": "uniform", "min": 0, "max": 1}}},
            "at least one",
        ),
        ({"images": {"size": "64x64", "modality": "video"}}, "videos need frames"),
        ({"images": {"size": "64x64", "frames": 3}}, "images have none"),
        ({"images": {"size": "64x64", "frames": 0, "modality": "video"}}, "at least one frame"),
        ({"images": {"size": "64x64", "count": 4, "pool": {"size": 3, "draw": "all_in_order"}}}, "reach 4"),
        ({"images": {"size": "64x64", "pool": {"size": 0}}}, "greater than 0"),
        ({"images": {"count": 1}}, "size"),
        ({"placement": "back"}, "front"),
        ({"num_request": 5}, "Extra"),
        ({"num_requests": 10**18}, "less than or equal to 1000000000"),
        ({"output_tokens": 10**18}, "less than or equal to 1099511627776"),
        ({"images": {"size": "64x64", "pool": {"size": 10**18}}}, "less than or equal to 1000000000"),
        ({"images": {"size": "64x64", "count": 1_000_000}}, "count can reach 1000000; a request has at most 10000"),
        ({"images": {"size": "64x64", "frames": 10**9, "modality": "video"}}, "frames can reach 1000000000; a video"),
        ({"images": [{"size": "64x64"}] * 101}, "at most 100 items"),
        ({"kind": "synthetics"}, "synthetics"),
    ],
)
def test_wrong_workloads(changes, message):
    with pytest.raises(ValidationError, match=message):
        workload(BASE, **changes)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "at least 1"),
        ([client(str(index)) for index in range(1001)], "at most 1000"),
        ([client("a"), client("a")], "two clients are called 'a'"),
        ([client("")], "at least 1 character"),
        ([client("a", arrivals={"kind": "concurrency", "users": 1})], "concurrency"),
    ],
)
def test_wrong_mixes(clients, message):
    with pytest.raises(ValidationError, match=message):
        decode({"kind": "mix", "clients": clients})


WHOLE = st.sampled_from([1, 2, 100, 10_000, 65_535, 10**9, 2**40, 2**63, 10**30])
SPREAD = st.sampled_from([0, 1e-300, 1e-9, 1.0, 1e3, 1e9, 1e300])
EXTREME_LENGTHS = st.one_of(
    WHOLE,
    st.builds(lambda most: {"kind": "uniform", "min": 1, "max": most}, WHOLE),
    st.builds(lambda mu, s, most: {"kind": "lognormal", "mean": mu, "sigma": s, "max": most}, SPREAD, SPREAD, WHOLE),
    st.builds(lambda a, b, p, q: {"kind": "empirical", "values": {a: p, b: q}}, WHOLE, WHOLE, SPREAD, SPREAD),
)
SIDE = st.builds(lambda side, more: {"min": side, "max": side + more}, WHOLE, st.sampled_from([0, 50, 3000, 60_000]))
EXTREME_IMAGES = st.fixed_dictionaries(
    {
        "size": st.tuples(WHOLE, WHOLE).map(list)
        | st.builds(lambda w: {"kind": "uniform", "width": w, "height": w}, SIDE)
    },
    optional={
        "count": st.sampled_from([1, 10_000, 10**6]) | EXTREME_LENGTHS.map(lambda n: n if isinstance(n, int) else 1),
        "pool": st.builds(lambda size: {"size": size}, WHOLE),
    },
)


@settings(max_examples=40, deadline=4000)
@given(EXTREME_LENGTHS, EXTREME_LENGTHS, EXTREME_IMAGES | st.none(), WHOLE)
def test_extremes_are_refused_in_a_line_or_served_promptly(text, output, images, number):
    changes = {"text_tokens": text, "output_tokens": output, "images": images, "num_requests": number}
    try:
        load = workload(BASE, **changes)
    except ValidationError as error:
        assert all(len(details["msg"]) < 120 and "\n" not in details["msg"] for details in error.errors())
        return
    for request in itertools.islice(load.requests(seed=1, model=MODEL), 3):
        check(request)
    load.largest_item(seed=1, model=MODEL)


def test_images_alone_make_a_prompt():
    assert requests(BASE, text_tokens=0, images={"size": "512x512"})[0].prompt_tokens == 258


def test_a_negative_seed():
    with pytest.raises(InputError, match="seed must not be negative"):
        requests(BASE, seed=-1)
