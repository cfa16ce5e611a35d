"""Random small loads whose prompts begin alike: hashed text, images in it and behind it, some without a key."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from rules import MS, Desk
from small_loads import Load, servers

from workloads.request import MultimodalItem, Request

CACHED: dict[str, Any] = {"enable_prefix_caching": True, "block_size": 1}
CONTENTS = [(f"k{index}", tokens, rows) for index, (tokens, rows) in enumerate([(2, 1), (4, 3), (4, 3), (6, 5)])]
CONTENTS += [(None, 4, 3)]


class Mould(NamedTuple):
    """What prompts have in common, more or less."""

    size: int  # of hashed blocks
    contents: list[Any]  # of the images
    gaps: list[int]  # before each of them


@st.composite
def moulds(draw: st.DrawFn) -> Mould:
    contents = draw(st.lists(st.sampled_from(CONTENTS), max_size=3))
    return Mould(draw(st.integers(1, 5)), contents, [draw(st.integers(0, 5)) for _ in contents])


@st.composite
def prompts(draw: st.DrawFn, id: int, mould: Mould | None = None) -> Request:
    """Hashes from few, as those of prefixes are: each stands for its own place. Here and there one is another."""
    mould = mould or draw(moulds())
    rarely = st.sampled_from([0, 0, 0, 0, 1])
    hashes = tuple(10 * index + draw(rarely) for index in range(draw(st.integers(0, 6))))
    items, place = [], 0
    for like, gap in zip(mould.contents, mould.gaps, strict=True):
        key, tokens, rows = draw(st.sampled_from(CONTENTS)) if draw(rarely) else like
        place += gap + draw(rarely)
        items.append(MultimodalItem(key, "image", (1, 1, tokens), place, rows, tokens, rows, 100 * tokens))
        place += rows
    tail, arrival = draw(st.integers(1, 8)), draw(st.integers(0, 12)) * (MS // 2)
    items = items[: draw(st.integers(0, 3))]
    return Request(id, arrival, place + tail, draw(st.integers(1, 7)), tuple(items), hashes, hash_block_size=mould.size)


@st.composite
def shared_loads(draw: st.DrawFn, *, cancelled: bool = True, most: int = 7, **fixed: Any) -> Load:
    mould = draw(moulds())
    drawn = [draw(prompts(id, mould)) for id in range(draw(st.integers(2, most)))]
    asked = tuple(
        request._replace(id=id) for id, request in enumerate(sorted(drawn, key=lambda request: request.arrival))
    )
    ids = st.sampled_from([request.id for request in asked])
    times = st.integers(0, 40).map(lambda n: n * MS // 2)
    cancels = draw(st.dictionaries(ids, times, max_size=2)) if cancelled else {}
    return Load(asked, draw(servers(asked, **{"enable_prefix_caching": True, **fixed})), cancels)


def alike(id: int, tokens: int = 9, output: int = 1) -> Request:
    """Hashed text of 8 tokens and its own."""
    return Request(id, 0, tokens, output, (), (1,), hash_block_size=8)


def started(desk: Desk, *asked: Request) -> None:
    """Served until nothing runs."""
    desk.submit(*asked)
    desk.steps()
