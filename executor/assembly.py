"""From a plan to one packed batch of the language model: prefill chunks first, then decodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.paged import Paged, PagedKV
from executor.prompts import Sequence
from executor.rows import Piece
from policies.plan import IterationPlan
from policies.request_state import RequestState

Ints = NDArray[np.int64]


@dataclass
class Batch:
    """T packed tokens of B sequences, of which E give a token."""

    token_ids: Tensor  # [T] int64
    positions: Tensor  # [3, T] int64
    embed_at: Tensor  # [N] int64: packed places that encoder rows go to
    pieces: list[Piece]  # where those rows are, in the same order
    emit: Tensor  # [E] int64: packed places whose logits are wanted
    owners: list[RequestState]  # E of them: whose token it is
    paged: Paged


@dataclass
class _Packing:
    """The batch in the making, on the host."""

    ids: list[Ints] = field(default_factory=list)
    positions: list[Ints] = field(default_factory=list)
    slots: list[Ints] = field(default_factory=list)
    embed_at: list[Ints] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    tables: list[Ints] = field(default_factory=list)
    query_lens: list[int] = field(default_factory=list)
    kv_lens: list[int] = field(default_factory=list)
    emit: list[int] = field(default_factory=list)
    owners: list[RequestState] = field(default_factory=list)
    size: int = 0  # tokens so far


def assemble(
    plan: IterationPlan, sequences: Mapping[int, Sequence], kv: PagedKV, skip: Collection[RequestState] = ()
) -> Batch | None:
    """The plan's forward without the requests to skip; None if nothing is left. Block tables must be settled."""
    packing, block_size = _Packing(), kv.block_size
    for request, num_tokens in plan.prefill:
        if request not in skip:
            _add_chunk(packing, request, sequences[request.id], num_tokens, block_size)
    num_chunks = len(packing.query_lens)
    if plan.decode is not None:
        _add_decodes(packing, list(plan.decode.members), plan.decode.steps, sequences, block_size)
    return _on_device(packing, num_chunks, kv) if packing.size else None


def _add_chunk(packing: _Packing, request: RequestState, sequence: Sequence, num_tokens: int, block_size: int) -> None:
    start = request.num_computed_tokens
    end = start + num_tokens
    blocks, index = np.asarray(request.blocks), np.arange(start, end)
    packing.ids.append(sequence.ids[start:end])
    packing.positions.append(sequence.positions[:, start:end])
    packing.slots.append(blocks[index // block_size] * np.int64(block_size) + index % block_size)
    packing.tables.append(blocks[: -(-end // block_size)])
    packing.query_lens.append(num_tokens)
    packing.kv_lens.append(end)
    _add_embeddings(packing, request, start, end)
    packing.size += num_tokens
    if end == request.target:
        packing.emit.append(packing.size - 1)
        packing.owners.append(request)


def _add_embeddings(packing: _Packing, request: RequestState, start: int, end: int) -> None:
    """Only at the prompt's placeholders: an answer may well contain a placeholder's id."""
    for index, item in enumerate(request.items):
        first, last = max(start, item.offset), min(end, item.offset + item.embeds)
        if first < last:
            packing.embed_at.append(np.arange(first, last) - start + packing.size)
            packing.pieces.append((request.holds[index], first - item.offset, last - item.offset))


def _add_decodes(
    packing: _Packing, members: list[RequestState], steps: int, sequences: Mapping[int, Sequence], block_size: int
) -> None:
    """One token each, the last that came: where it stands is all that differs between the members."""
    places = [request.num_computed_tokens + steps - request.joined for request in members]
    own = [sequences[request.id] for request in members]
    packing.ids.append(np.array([s.ids[p] for s, p in zip(own, places, strict=True)]))
    packing.positions.append(np.array([s.positions[:, p] for s, p in zip(own, places, strict=True)]).T)
    at = [
        request.blocks[p // block_size] * block_size + p % block_size
        for request, p in zip(members, places, strict=True)
    ]
    packing.slots.append(np.array(at))
    packing.tables += [np.asarray(request.blocks) for request in members]
    packing.query_lens += [1] * len(members)
    packing.kv_lens += [p + 1 for p in places]
    packing.emit += range(packing.size, packing.size + len(members))
    packing.owners += members
    packing.size += len(members)


def _on_device(packing: _Packing, num_chunks: int, kv: PagedKV) -> Batch:
    device = kv.keys.device

    def tensor(values: Ints | list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(device, non_blocking=True)

    tables = np.zeros((len(packing.tables), max(map(len, packing.tables))), np.int32)
    for row, blocks in zip(tables, packing.tables, strict=True):
        row[: len(blocks)] = blocks
    paged = Paged(
        keys=kv.keys,
        values=kv.values,
        slots=tensor(np.concatenate(packing.slots)),
        tables=tensor(tables, torch.int32),
        query_starts=tensor(np.cumsum([0, *packing.query_lens]), torch.int32),
        kv_lens=tensor(packing.kv_lens, torch.int32),
        query_lens=packing.query_lens,
        host_kv_lens=packing.kv_lens,
        num_chunks=num_chunks,
    )
    return Batch(
        token_ids=tensor(np.concatenate(packing.ids)),
        positions=tensor(np.concatenate(packing.positions, axis=1)),
        embed_at=tensor(np.concatenate(packing.embed_at) if packing.embed_at else []),
        pieces=packing.pieces,
        emit=tensor(packing.emit),
        owners=packing.owners,
        paged=paged,
    )
