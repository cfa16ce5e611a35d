"""What becomes of a picture on its way into a Qwen vision encoder: resized size, patch grid, tokens."""

import math
from dataclasses import dataclass
from functools import lru_cache

from workloads.errors import InputError

TEMPORAL_PATCH = 2  # frames that share a patch; a single picture is doubled
MAX_ASPECT = 200


@dataclass(frozen=True, slots=True)
class Geometry:
    """A picture as the encoder sees it."""

    resized_width: int
    resized_height: int
    grid: tuple[int, int, int]  # frames, height and width in patches
    encoder_tokens: int  # before the merger: product of the grid
    embeds: int  # after the merger: rows of encoder output


@lru_cache(maxsize=1 << 16)
def image_geometry(
    width: int, height: int, *, factor: int, min_pixels: int, max_pixels: int, frames: int = 1, merge_size: int = 2
) -> Geometry:
    """The geometry of an image (one frame) or of a video, whose frames are each resized like an image.

    `factor` is patch size times merge size. InputError on sizes that are not positive and on an aspect ratio over 200.
    """
    if min(width, height, frames) <= 0:
        what = f"{width}x{height}" if frames == 1 else f"{width}x{height} with {frames} frames"
        raise InputError(f"an image needs a positive size, got {what}")
    resized_height, resized_width = smart_resize(height, width, factor, min_pixels, max_pixels)
    patch = factor // merge_size
    grid = (math.ceil(frames / TEMPORAL_PATCH), resized_height // patch, resized_width // patch)
    tokens = math.prod(grid)
    return Geometry(resized_width, resized_height, grid, tokens, tokens // merge_size**2)


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) as multiples of `factor`, as transformers' Qwen2-VL image processor computes them.

    A side below half a factor rounds to 0 there, which sends the picture to the enlarging branch: 1x200 becomes 28x812.
    """
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise InputError(f"an image's aspect ratio must not exceed {MAX_ASPECT}, got {width}x{height}")
    rounded_height, rounded_width = round(height / factor) * factor, round(width / factor) * factor
    if rounded_height * rounded_width > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        return (
            max(factor, math.floor(height / beta / factor) * factor),
            max(factor, math.floor(width / beta / factor) * factor),
        )
    if rounded_height * rounded_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        return math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return rounded_height, rounded_width


@lru_cache(maxsize=1 << 14)
def size_for_embeds(embeds: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) of the squarest image whose embeds come nearest to `embeds` within the pixel limits."""
    least, most = math.ceil(min_pixels / factor**2), max_pixels // factor**2
    wanted = min(max(embeds, least), most)
    near = range(max(least, wanted - 64), min(most, wanted + 64) + 1)
    for count in sorted(near, key=lambda count: abs(count - wanted)):
        rows = next(rows for rows in range(math.isqrt(count), 0, -1) if count % rows == 0)
        if count <= MAX_ASPECT * rows**2:
            return count // rows * factor, rows * factor
    raise InputError(f"no image has about {embeds} embeds between {min_pixels} and {max_pixels} pixels")
