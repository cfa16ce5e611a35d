"""Independent random streams by name, so that changing one distribution leaves all other draws alone."""

import hashlib

import numpy as np

from workloads.errors import InputError


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """The generator of `name` under `seed`: the same pair gives the same draws, any other pair unrelated ones."""
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    digest = hashlib.sha256("\0".join(map(str, name)).encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, len(digest), 4)]
    return np.random.default_rng(np.random.SeedSequence([seed, *words]))
