"""Names for a request's full KV blocks: equal names mean equal tokens in the block and in everything before it."""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b
from typing import Any

from workloads.content import public_runs
from workloads.request import Request

BlockKey = tuple[Any, int]  # (digest of all before the run and its source, end in the prompt), or (request id, index)


class BlockKeys:
    """Hashes are chained over the runs of the prompt instead of its blocks, which comes to the same and costs less.

    As in vLLM (v1/core/kv_cache_utils.py, hash_block_tokens) a key covers the tokens before the block, and items by
    content and place (vllm-project/vllm#11187). Digests have 128 bits, so that keys do not collide by chance. Blocks
    with anything of the request's own in them or before them have its id for a name: only itself finds them again.
    """

    __slots__ = ("_block_size", "_ends", "_heads", "_id", "num_shareable")

    def __init__(self, request: Request, block_size: int) -> None:
        self._id = request.id
        self._block_size = block_size
        self._ends: list[int] = []  # of the runs, in the prompt
        self._heads: list[bytes] = []  # what comes before each run, and what it is
        head = b""
        for run in public_runs(request):
            head = _digest(head, run.source, run.offset)
            self._heads.append(head)
            self._ends.append(run.end)
            head = _digest(head, run.end)
        self.num_shareable = (self._ends[-1] if self._ends else 0) // block_size  # blocks others may have as well

    def key(self, index: int) -> BlockKey:
        """Of the block at that place of the block table, where it is full."""
        if index >= self.num_shareable:
            return self._id, index
        end = (index + 1) * self._block_size
        return self._heads[bisect_left(self._ends, end)], end


def _digest(before: bytes, *content: Any) -> bytes:
    return blake2b(before + repr(content).encode(), digest_size=16).digest()
