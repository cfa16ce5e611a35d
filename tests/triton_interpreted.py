"""Runs the attention kernels in Triton's interpreter and prints, for every case, how far they are from the oracle.

A program of its own, since TRITON_INTERPRET=1 must be set before triton is imported: `tests/test_triton_kernels.py`
starts it and looks at what it prints, one JSON object.
"""

import json
import math
import os
import sys
from dataclasses import replace

import torch
from paged_batches import Heads, expected, random_batch

MIXED = {"chunks": [(5, 5), (17, 40), (1, 1), (70, 85)], "decodes": [33, 1, 64, 130]}
PADDED = {"chunks": [(9, 23), (7, 0)], "decodes": [12, 0, 0]}  # 7 padding tokens that belong to nobody, and two decodes
CASES = {
    "groups 1, dim 16, page 4": (Heads(1, 4, 16, 4), MIXED),
    "groups 2, dim 32, page 8": (Heads(2, 3, 32, 8), MIXED),
    "groups 4, dim 64, page 16": (Heads(4, 2, 64, 16), MIXED),
    "groups 7, dim 128, page 16": (Heads(7, 1, 128, 16), MIXED),
    "groups 6, dim 80, page 8": (Heads(6, 1, 80, 8), MIXED),  # as wide as no power of two
    "groups 24, dim 16, page 4": (Heads(24, 1, 16, 4), MIXED),
    "chunks alone": (Heads(7, 2, 64, 16), {"chunks": [(3, 3), (40, 200)], "decodes": []}),
    "decodes alone": (Heads(7, 2, 64, 16), {"chunks": [], "decodes": [1, 17, 300, 32, 999]}),
    "padding": (Heads(2, 2, 32, 8), PADDED),
}


def distance(
    heads: Heads, batch: dict, dtype: torch.dtype = torch.float32, stretched: bool = False, splits: int = 0
) -> float:
    """The largest difference from the oracle, as a part of its largest value; infinite where it is not finite."""
    from executor.triton_attention import attend, prepare

    query, paged = random_batch(heads, **batch, layers=2, dtype=dtype)
    layer, scaling = 1, heads.dim**-0.5
    if stretched:  # queries that are not packed tightly, as a projection of more than queries leaves them
        query = torch.cat([query, torch.full_like(query, torch.nan)], dim=1)[:, : query.shape[1]]
    paged.kernel = prepare(paged, query.shape[1])
    if paged.num_chunks:  # blocks to spare, as in a captured graph
        more = torch.full((3,), -1, dtype=torch.int32)
        spare = {"block_firsts": torch.cat([paged.kernel.block_firsts, more])}
        spare["block_sequences"] = torch.cat([paged.kernel.block_sequences, more.clamp(min=0)])
        paged.kernel = replace(paged.kernel, **spare)
    if splits:  # fewer than the kernel would get: stretches of several tiles
        parts, weights = (t[:, :, :splits].clone() for t in (paged.kernel.parts, paged.kernel.weights))
        paged.kernel = replace(paged.kernel, splits=splits, parts=parts, weights=weights)
    paged.kernel.parts.fill_(torch.nan)
    out, want = attend(query, paged, layer, scaling), expected(query, paged, layer, scaling)
    return float((out.double() - want).abs().max() / want.abs().max()) if out.isfinite().all() else math.inf


def main() -> None:
    assert os.environ.get("TRITON_INTERPRET") == "1"
    torch.set_num_threads(1)
    errors = {name: distance(*case) for name, case in CASES.items()}
    errors["queries with gaps"] = distance(Heads(4, 2, 32, 8), MIXED, stretched=True)
    for splits in (1, 4):
        long = {"chunks": [], "decodes": [999, 257, 256, 3, 65]}
        errors[f"{splits} splits"] = distance(Heads(4, 2, 32, 16), long, splits=splits)
    # the interpreter multiplies bfloat16 as if it were whole numbers: that dtype is for the GPU's tests
    errors["float16"] = distance(Heads(7, 1, 64, 16), {"chunks": [(9, 50)], "decodes": [77, 0]}, torch.float16)
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
