"""One request on its way through the server: what is computed, and which blocks and encoder rows it holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from policies.blocks import no_blocks
from workloads.request import Modality, Request

if TYPE_CHECKING:
    from policies.block_keys import BlockKeys
    from policies.encoder_cache import EncoderEntry, Key


class RequestState:
    """A request catches up with its own tokens: there is no phase, only how far `num_computed_tokens` has come.

    Where prefixes are cached, it has come as far as the cache before it has started (see `policies.prefixes`).
    While a request decodes, the cohort counts for it (see `policies.decodes`), and the fields here stand as they
    were when it joined.
    """

    order = -1  # place in the order of admission; -1 while waiting
    queued = -1  # place in the order of queueing, for which a preemption counts as queueing again
    num_finished_before = -1  # requests that had finished when it was last preempted
    num_computed_tokens = 0
    num_generated = 0  # answer tokens emitted so far
    max_blocks = 0  # KV blocks for max_tokens; known once it is submitted
    joined = -1  # cohort step at which it began to decode; -1 while it does not
    last_step = -1  # cohort step after which its answer is complete
    block_keys: BlockKeys | None = None  # of its KV blocks, where prefixes are cached
    hit: Sequence[int] = ()  # cached blocks that it would start with now, while it has not started
    num_cached_tokens = 0  # prompt tokens that it did not compute when it first started
    encoded: frozenset[int] = frozenset()  # items that were encoded for this request since it last started
    num_encodes = 0
    num_cache_hits = 0  # items that prefill passed without their having been encoded for this request
    num_preemptions = 0
    num_overtaken = 0  # requests that were admitted before it although they stood behind it in the waiting queue

    def __init__(self, request: Request) -> None:
        self.request = request
        self.id = request.id
        self.arrival = request.arrival  # in nanoseconds; whoever serves it may know better
        self.items = request.items
        self.keys: tuple[Key, ...] = tuple(map(self.content_key, range(len(self.items)))) if self.items else ()
        self.num_items_ahead = len(self.items)  # items that prefill has yet to pass: the last ones of the prompt
        self.target = request.prompt_tokens  # tokens to prefill: the prompt, after a preemption also the answer so far
        self.max_tokens = request.prompt_tokens + request.output_tokens - 1  # the last token is never written to the KV
        self.blocks = no_blocks()  # its block table
        self.holds: dict[int, EncoderEntry] = {}  # item index -> its entry in the encoder cache
        self.held: set[int] = set()  # the same indices: what is released together goes in this set's order, as in vLLM

    def content_key(self, index: int) -> Key:
        """What the item shows, whether or not its output is shared; without a content key, as nobody else's can be.

        It carries modality and size, so that a key used again for another picture finds no wrong rows.
        """
        item = self.items[index]
        return ("temporary", self.id, index) if item.key is None else (item.modality, item.key, item.embeds)

    def use_own_keys(self) -> None:
        """Share no encoder output with anybody, not even between equal items."""
        self.keys = tuple(("temporary", self.id, index) for index in range(len(self.items)))

    @cached_property
    def encoder_tokens(self) -> int:
        """Pre-merger, of all its items."""
        return sum(item.encoder_tokens for item in self.items)

    @cached_property
    def modalities(self) -> frozenset[Modality]:
        return frozenset(item.modality for item in self.items)

    @property
    def remaining(self) -> int:
        """Tokens still to prefill."""
        return self.target - self.num_computed_tokens

    @property
    def next_item(self) -> int:
        """The first item that prefill has not passed."""
        return len(self.items) - self.num_items_ahead

    def missing(self) -> list[int]:
        """Indices of the items that prefill still needs and that the request holds no output of, nor one in flight."""
        holds, size = self.holds, len(self.items)
        return [i for i in range(size - self.num_items_ahead, size) if i not in holds or holds[i].rows is None]

    def __repr__(self) -> str:
        return f"request {self.id}"
