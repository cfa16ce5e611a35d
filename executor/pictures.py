"""Pixels of an item, as the processor would hand them to the encoder: seeded by content key, or from picture files."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import torch
from torch import Tensor

from policies.encoder_cache import Key
from sim.files import usable
from workloads.errors import InputError
from workloads.models import VisionLanguageModel
from workloads.request import MultimodalItem

TEMPORAL_PATCH = 2  # pictures that one frame of patches covers
CHANNELS = 3
FILES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"}
MEAN = (0.48145466, 0.4578275, 0.40821073)  # OpenAI CLIP's, from the models' preprocessor_config.json
STD = (0.26862954, 0.26130258, 0.27577711)


class Pictures:
    """Same key, same pixels: so equal content keys name equal content, as in a server."""

    def __init__(
        self,
        shape: VisionLanguageModel,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        folder: Path | None = None,
    ) -> None:
        """`folder` holds picture files; each key takes one of them. Raises InputError if there are none."""
        self._shape = shape
        self._seed = seed
        self._device = device
        self._dtype = dtype
        self._files = [] if folder is None else _picture_files(folder)

    def patches(self, item: MultimodalItem, key: Key) -> Tensor:
        """[encoder_tokens, channels * temporal patch * patch * patch], normalised."""
        number = self._number(key)
        if self._files:
            return self._from_file(self._files[number % len(self._files)], item)
        generator = torch.Generator(self._device).manual_seed(number)
        width = CHANNELS * TEMPORAL_PATCH * self._shape.patch_size**2
        size = (item.encoder_tokens, width)
        drawn = torch.randn(size, generator=generator, device=self._device, dtype=torch.float32)
        return drawn.to(self._dtype)

    def _number(self, key: Key) -> int:
        """63 bits that depend on seed and key alone."""
        digest = hashlib.blake2b(repr((self._seed, key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _from_file(self, path: Path, item: MultimodalItem) -> Tensor:
        """The picture at the item's resized size, the same in every frame, cut up in the encoder's order."""
        frames, height, width = item.grid
        patch, merge = self._shape.patch_size, self._shape.merge_size
        image = _read(path, (width * patch, height * patch))
        normal = (image - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
        cut = normal.reshape(CHANNELS, height // merge, merge, patch, width // merge, merge, patch)
        rows = cut.permute(1, 4, 2, 5, 0, 3, 6).reshape(height * width, CHANNELS, 1, patch, patch)
        rows = rows.expand(-1, -1, TEMPORAL_PATCH, -1, -1).reshape(height * width, -1)
        return rows.repeat(frames, 1).to(self._device, self._dtype)


def _picture_files(folder: Path) -> list[Path]:
    if not usable(folder).is_dir():
        raise InputError(f"images: {folder} is no folder")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in FILES)
    if not files:
        raise InputError(f"images: {folder} holds no picture files ({', '.join(sorted(FILES))})")
    return files


def _read(path: Path, size: tuple[int, int]) -> Tensor:
    """[3, height, width] from 0 to 1, resized as the models' processors do (bicubic)."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # more pixels than any camera's: unreadable
        with Image.open(path) as picture:
            resized = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    pixels = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8)
    return pixels.view(size[1], size[0], CHANNELS).permute(2, 0, 1).float() / 255
