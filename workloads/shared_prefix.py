"""Text that many prompts begin with, as system prompts are: a few prefixes of one length, drawn for every request."""

import hashlib
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from workloads.frozen import CHUNK, Frozen
from workloads.request import Request
from workloads.streams import stream


class SharedPrefix(Frozen):
    """Comes before images and text; options as in vLLM's `bench serve --dataset-name prefix_repetition`."""

    prefix_len: Annotated[int, Field(ge=1, le=2**20)]  # tokens
    num_prefixes: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1  # each as likely as any other

    def before(self, requests: Iterator[Request], seed: int, name: str) -> Iterator[Request]:
        """The same requests, each behind one of the prefixes."""
        for request, index in zip(requests, self._picks(seed, name), strict=False):
            items = tuple(item._replace(offset=item.offset + self.prefix_len) for item in request.items)
            yield request._replace(
                prompt_tokens=request.prompt_tokens + self.prefix_len,
                items=items,
                block_hashes=(_hash(seed, name, index),),
                hash_block_size=self.prefix_len,
            )

    def _picks(self, seed: int, name: str) -> Iterator[int]:
        rng = stream(seed, name, "shared_prefix")
        while True:
            yield from rng.integers(self.num_prefixes, size=CHUNK).tolist()


def _hash(seed: int, name: str, index: int) -> int:
    """63 bits, so that clients with other names or seeds have other prefixes."""
    digest = hashlib.blake2b(f"{seed}/{name}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
