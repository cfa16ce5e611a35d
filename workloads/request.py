"""What a client asks for: a request and the images and videos inside its prompt."""

from typing import Literal, NamedTuple

Modality = Literal["image", "video"]
MOST_PRIORITY = 10**6  # either way


class MultimodalItem(NamedTuple):
    """One image or one video: the atom of encoder scheduling, never split.

    `embeds` may be smaller than `length`: some processors put break tokens between the placeholders,
    and only the embeds cost encoder output rows (vllm-project/vllm#18329).
    """

    key: str | None  # content hash; None where the client has no stable one
    modality: Modality
    grid: tuple[int, int, int]  # frames, height and width in patches
    offset: int  # first placeholder in the prompt
    length: int  # prompt tokens that the item spans, at least `embeds`
    encoder_tokens: int  # pre-merger: what the vision encoder attends over, product of the grid
    embeds: int  # post-merger: rows of encoder output
    pixels: int  # of the original picture (all frames), what the front end decodes and resizes


class Request(NamedTuple):
    """One prompt and how many tokens its answer has. EOS is ignored: the answer always has `output_tokens`."""

    id: int
    arrival: int  # scheduled arrival in nanoseconds; 0 in a closed loop, where the client decides
    prompt_tokens: int  # text and placeholders together
    output_tokens: int  # at least 1
    items: tuple[MultimodalItem, ...] = ()  # in prompt order, not overlapping
    block_hashes: tuple[int, ...] = ()  # of the text's first blocks; text without one is like no other request's
    priority: int = 0  # of its client: with a policy that looks at it, lower values come first
    hash_block_size: int = 512  # prompt tokens that each of block_hashes stands for; Mooncake's 512
