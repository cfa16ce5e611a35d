"""What a prompt says, as far as another one could say the same: stretches of hashed text, of items, and delimiters."""

from collections.abc import Iterator
from typing import NamedTuple

from workloads.request import MultimodalItem, Request

Source = tuple[str | int | tuple[int, int, int], ...]
START, END = ("start",), ("end",)  # the delimiters around an item, where there is room for them


class Run(NamedTuple):
    """Tokens `start` to `end` of a prompt; those of one source at one offset are equal in every prompt."""

    start: int
    end: int
    source: Source
    offset: int  # of the first of them in the source


def public_runs(request: Request) -> Iterator[Run]:
    """The prompt from its first token on, up to the first that is the request's own.

    Its own is text past the last block hash, and an item without a content key.
    """
    done = 0
    for run in _runs(request):
        if run.start > done:
            return
        yield run
        done = run.end


def _runs(request: Request) -> Iterator[Run]:
    """All that could be shared, in order, with gaps."""
    done = 0
    for index, item in enumerate(request.items):
        if item.offset > done:
            yield from _text(request, done, item.offset - 1)
            yield Run(item.offset - 1, item.offset, START, 0)
        done = item.offset + item.length
        if item.key is not None:
            yield Run(item.offset, done, _source(item), 0)
        if done < _next_start(request, index):
            yield Run(done, done + 1, END, 0)
            done += 1
    yield from _text(request, done, request.prompt_tokens)


def _next_start(request: Request, index: int) -> int:
    """Where the next item's delimiter stands, or the prompt ends."""
    following = request.items[index + 1 : index + 2]
    return following[0].offset - 1 if following else request.prompt_tokens


def _source(item: MultimodalItem) -> Source:
    """With all that its rows and their positions depend on, should a key be used again for another picture."""
    assert item.key is not None
    return ("item", item.modality, item.key, item.length, item.embeds, item.grid)


def _text(request: Request, start: int, end: int) -> Iterator[Run]:
    size, hashes = request.hash_block_size, request.block_hashes
    while start < min(end, size * len(hashes)):
        block = start // size
        stop = min(end, (block + 1) * size)
        yield Run(start, stop, ("text", size, hashes[block]), start - block * size)
        start = stop
