"""Random small workloads and servers for property tests; whatever they come to, every request can be served."""

from __future__ import annotations

from typing import Any, NamedTuple

from acting import EVERY
from hypothesis import strategies as st
from rules import MS, Sized, request

from policies.limits import Limits
from workloads.request import Request


class Load(NamedTuple):
    """Requests with a server that can serve each of them alone, and when clients give up (ns)."""

    requests: tuple[Request, ...]
    limits: Limits
    cancels: dict[int, int]


@st.composite
def pictures(draw: st.DrawFn) -> list[Sized]:
    """A few contents that requests share (a key always names the same content), one of them without a key."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=2, max_size=4))
    shared = [Sized(tokens, rows, f"k{index}", "image", index % 2) for index, (tokens, rows) in enumerate(sizes)]
    return [*shared, Sized(*draw(st.tuples(st.integers(1, 6), st.integers(1, 4))), None)]


@st.composite
def requests(draw: st.DrawFn, most: int = 5) -> tuple[Request, ...]:
    contents = draw(pictures())
    items = st.lists(st.sampled_from(contents), max_size=3)
    shapes = st.tuples(items, st.integers(1, 6), st.integers(1, 7), st.integers(0, 12), st.integers(0, 2))
    drawn = sorted(draw(st.lists(shapes, min_size=1, max_size=most)), key=lambda shape: shape[3])
    half = MS // 2
    return tuple(
        request(id, items, text=text, output=output, arrival=when * half, priority=priority)
        for id, (items, text, output, when, priority) in enumerate(drawn)
    )


def _need(asked: Request, block_size: int) -> int:
    return -(-(asked.prompt_tokens + asked.output_tokens - 1) // block_size)


def _rows(asked: Request, reuse: bool) -> int:
    """Equal items share their rows, but not where nothing is shared."""
    return sum(
        {item.key if reuse and item.key else index: item.embeds for index, item in enumerate(asked.items)}.values()
    )


@st.composite
def servers(draw: st.DrawFn, asked: tuple[Request, ...], **fixed: Any) -> Limits:
    """Budgets from just enough for the largest request alone to a little more."""
    block_size, seqs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    chunked = draw(st.booleans())
    longest = max(r.prompt_tokens + r.output_tokens - 1 for r in asked)
    least_tokens = max(seqs, 1 if chunked else longest)
    reuse = draw(st.booleans())
    largest = max((item.encoder_tokens for r in asked for item in r.items), default=1)
    chosen = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": least_tokens + draw(st.integers(0, 8)),
        "chunked_prefill": chunked,
        "block_size": block_size,
        "num_kv_blocks": max(_need(r, block_size) for r in asked) + draw(st.integers(0, 6)),
        "capacity": draw(st.sampled_from(["no_evict", "max_utilization"])),
        "encoder_max_num_items": draw(st.integers(1, 3)),
        "encoder_max_num_tokens": largest + draw(st.integers(0, 6)),
        "encoder_cache_rows": max(1, *(_rows(r, reuse) for r in asked), 1) + draw(st.integers(0, 4)),
        "encoder_cache_reuse": reuse,
        "admission_gate": draw(st.booleans()),
        "release": draw(st.sampled_from(["progressive", "prompt_end"])),
    }
    return Limits(**(chosen | fixed))


@st.composite
def loads(draw: st.DrawFn, *, cancelled: bool = True, **fixed: Any) -> Load:
    asked = draw(requests())
    ids = st.sampled_from([r.id for r in asked])
    cancels = draw(st.dictionaries(ids, st.integers(0, 40).map(lambda n: n * MS // 2), max_size=2)) if cancelled else {}
    return Load(asked, draw(servers(asked, **fixed)), cancels)


def resolved(load: Load, policy: str) -> Load:
    """With the limits that the policy's engine would have: the one from before there were budgets gets none."""
    largest = max((item for r in load.requests for item in r.items), key=lambda item: item.embeds, default=None)
    limits, _ = EVERY[policy].resolve(load.limits, largest_item=largest, row_bytes=1)
    if isinstance(limits.encoder_cache_rows, int):  # an engine that shares nothing needs more than was drawn
        rows = max(_rows(r, limits.encoder_cache_reuse) for r in load.requests)
        limits = limits.model_copy(update={"encoder_cache_rows": max(rows, limits.encoder_cache_rows)})
    return load._replace(limits=limits)
