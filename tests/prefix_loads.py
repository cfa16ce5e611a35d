"""Random small loads whose prompts begin alike: hashed text, images in it and behind it, some without a key."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from rules import MS
from small_loads import Load, servers

from workloads.request import MultimodalItem, Request

CONTENTS = tuple((f"k{index}", tokens, rows) for index, (tokens, rows) in enumerate([(2, 1), (4, 3), (4, 3), (6, 5)]))


@st.composite
def prompts(draw: st.DrawFn, id: int) -> Request:
    """Hashes from few, as those of prefixes are: each stands for its own place."""
    size = draw(st.integers(1, 5))
    hashes = tuple(10 * place + draw(st.integers(0, 1)) for place in range(draw(st.integers(0, 5))))
    items, place = [], draw(st.integers(0, 6))
    for key, tokens, rows in draw(st.lists(st.sampled_from([*CONTENTS, (None, 4, 3)]), max_size=3)):
        items.append(MultimodalItem(key, "image", (1, 1, tokens), place, rows, tokens, rows, 100 * tokens))
        place += rows + draw(st.integers(0, 4))
    tail = draw(st.integers(1, 8))
    arrival = draw(st.integers(0, 12)) * (MS // 2)
    output = draw(st.integers(1, 7))
    return Request(id, arrival, place + tail, output, tuple(items), hashes, hash_block_size=size)


@st.composite
def shared_loads(draw: st.DrawFn, *, cancelled: bool = True, most: int = 7, **fixed: Any) -> Load:
    drawn = [draw(prompts(id)) for id in range(draw(st.integers(2, most)))]
    asked = tuple(
        request._replace(id=id) for id, request in enumerate(sorted(drawn, key=lambda request: request.arrival))
    )
    ids = st.sampled_from([request.id for request in asked])
    times = st.integers(0, 40).map(lambda n: n * MS // 2)
    cancels = draw(st.dictionaries(ids, times, max_size=2)) if cancelled else {}
    return Load(asked, draw(servers(asked, **{"enable_prefix_caching": True, **fixed})), cancels)
