"""Padded static batches give what plain ones give; on CPU they run as they are, without a capture."""

import itertools
import random
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the live half needs torch")

import torch
from paged_batches import Heads, random_batch

from executor import graphs as graphs_module
from executor import runner as runner_module
from executor.assembly import Batch
from executor.capture import buckets, intervals, pad_to_interval, pad_to_power_of_two
from executor.graphs import DecodeGraphs, Graphs, MixedGraphs
from executor.memory_stats import MemoryFigures, MemoryMeter
from executor.models import load_model
from executor.options import Options
from executor.runner import Runner
from policies.limits import Limits

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, MAX_BLOCKS, MAX_TOKENS = 80, 4, 12, 48
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def runner():
    limits = Limits(
        num_kv_blocks=BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=8, max_num_batched_tokens=MAX_TOKENS,
        encoder_cache_rows=40,
    )  # fmt: skip
    made = Runner(load_model("tiny", CPU, torch.float64), limits, Options())
    made.storage.rows.normal_()
    return made


@pytest.fixture(autouse=True)
def random_memory(runner):
    """As if many tokens had been computed; page 0 too, since padding may not depend on what is in it."""
    draw = torch.Generator().manual_seed(1)
    for memory in (runner.kv.keys, runner.kv.values):
        memory.normal_(generator=draw)


def batch_of(runner, chunks, decodes, seed=0):
    """Random tokens of chunks (tokens, with those in the cache) and decodes, with an image's rows in every chunk."""
    text = runner.loaded.config.text_config
    heads = Heads(2, text.num_key_value_heads, text.hidden_size // text.num_attention_heads, BLOCK_SIZE)
    _, paged = random_batch(heads, chunks, decodes, seed=seed, dtype=torch.float64, spare_blocks=0)
    paged.keys, paged.values = runner.kv.keys, runner.kv.values
    starts, at = paged.query_starts.tolist(), []
    for sequence, (length, total) in enumerate(zip(paged.query_lens, paged.host_kv_lens, strict=True)):
        places = torch.arange(total - length, total)
        pages = paged.tables[sequence].long()[places // BLOCK_SIZE]
        paged.slots[starts[sequence] : starts[sequence + 1]] = pages * BLOCK_SIZE + places % BLOCK_SIZE
        at += range(starts[sequence], starts[sequence + 1] - 1)[:3]
    rng = random.Random(seed)
    pieces = [(SimpleNamespace(rows=np.array(rng.sample(range(40), len(at)))), 0, len(at))] if at else []
    draw = torch.Generator().manual_seed(seed)
    return Batch(
        token_ids=torch.randint(7, text.vocab_size, (starts[-1],), generator=draw),
        positions=torch.randint(0, 90, (3, starts[-1]), generator=draw),
        embed_at=torch.tensor(at, dtype=torch.int64),
        pieces=pieces,
        emit=torch.tensor([end - 1 for end in starts[1:]][1 if len(chunks) > 1 else 0 :]),  # the first has more to come
        owners=[],
        paged=paged,
    )


def assert_same(runner, graphs, batch):
    """Logits, and keys and values on every page but the one for padding."""
    before = [memory.clone() for memory in (runner.kv.keys, runner.kv.values)]
    batch.paged.mask = None
    plain = runner.forward(batch)
    written = [memory.clone() for memory in (runner.kv.keys, runner.kv.values)]
    runner.kv.keys.copy_(before[0])
    runner.kv.values.copy_(before[1])
    padded = graphs.run(batch)
    assert padded.shape == plain.shape and torch.allclose(padded, plain, rtol=0, atol=1e-12)
    for memory, want, old in zip((runner.kv.keys, runner.kv.values), written, before, strict=True):
        assert not torch.equal(want, old) and torch.allclose(memory[:, 1:], want[:, 1:], rtol=0, atol=1e-12)


def test_five_decodes_in_a_bucket_of_eight(runner):
    graphs = DecodeGraphs(runner, 8, MAX_BLOCKS)
    assert graphs.warm_up() == [] and list(graphs.replays) == [8, 4, 2, 1]
    assert_same(runner, graphs, batch_of(runner, [], [1, 17, 30, 4, 48]))


def test_a_bucket_remembers_nothing_of_the_batch_before(runner):
    graphs = DecodeGraphs(runner, 8, MAX_BLOCKS)
    graphs.warm_up()
    for decodes in ([20, 40, 3, 9, 11, 2, 33, 48], [1, 2, 3, 4, 5], [48], [7, 7, 7], [31, 5, 8, 48, 1, 1]):
        assert_same(runner, graphs, batch_of(runner, [], decodes, seed=len(decodes)))


@pytest.mark.parametrize("interval", [0, 5, 16])
def test_padded_mixed_batches(runner, interval):
    graphs = MixedGraphs(runner, MAX_TOKENS, 8, MAX_BLOCKS, interval)
    assert graphs.warm_up() == []
    for chunks, decodes in (
        ([(9, 9), (4, 30)], [1, 17, 48]),
        ([(5, 5)], []),  # no padding at an interval of 5
        ([(16, 40), (1, 1), (2, 8), (3, 3), (1, 7), (8, 8)], [12, 13]),  # as many sequences as there may be
        ([(48, 48)], []),
        ([(1, 1)], [2]),
    ):
        assert_same(runner, graphs, batch_of(runner, chunks, decodes, seed=len(chunks)))
        for static in graphs.batches.values():  # the kernels read on the device what the CPU path reads on the host
            assert static.paged.query_starts.tolist() == [0, *itertools.accumulate(static.paged.query_lens)]
            assert static.paged.kv_lens.tolist() == static.paged.host_kv_lens


def test_each_kind_of_batch_finds_its_graph_or_none(runner):
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=MAX_TOKENS)
    mixed, decodes, more = batch_of(runner, [(5, 9)], [3]), batch_of(runner, [], [3, 9]), batch_of(runner, [], [3] * 5)
    without = Graphs(runner, limits, Options(), MAX_BLOCKS)
    assert without.warm_up() == []
    assert without.run(mixed) is None and without.run(more) is None
    assert_same(runner, without, decodes)
    padded = Graphs(runner, limits, Options(pad_queries=16), MAX_BLOCKS)
    assert padded.warm_up() == []
    assert_same(runner, padded, mixed)
    assert_same(runner, padded, decodes)
    assert padded.run(batch_of(runner, [(49, 49)], [])) is None


def test_a_failed_capture_is_a_warning_and_the_next_larger_graph_serves(runner, monkeypatch):
    graphs = DecodeGraphs(runner, 8, MAX_BLOCKS)
    forward = graphs.forward

    def failing(size):
        if size == 2:
            raise RuntimeError("CUDA error: operation not permitted\nmore of it")
        forward(size)

    monkeypatch.setattr(graphs, "forward", failing)
    (warning,) = graphs.warm_up()
    assert warning == "no CUDA graph for 2 decodes, which run slower without: CUDA error: operation not permitted"
    assert_same(runner, graphs, batch_of(runner, [], [5, 6]))


def test_what_is_captured_is_captured_largest_first(runner, monkeypatch):
    order = []
    for kind in (DecodeGraphs, MixedGraphs):
        monkeypatch.setattr(kind, "forward", lambda self, size: order.append((type(self).__name__, size)))
    limits = Limits(max_num_seqs=6, max_num_batched_tokens=40)
    graphs_module.Graphs(runner, limits, Options(pad_queries=16), MAX_BLOCKS).warm_up()
    mixed, decodes = [("MixedGraphs", n) for n in (40, 32, 16)], [("DecodeGraphs", n) for n in (6, 4, 2, 1)]
    assert order == mixed + decodes


def test_padded_sizes():
    """SEMANTICS.md S50, S51: `pad_to_interval` and `pad_to_pow2` of transformers' continuous batching."""
    assert [pad_to_power_of_two(n, 6) for n in (0, 1, 2, 3, 5, 6)] == [1, 1, 2, 4, 6, 6]
    assert [pad_to_interval(n, 16, 40) for n in (0, 1, 16, 17, 40)] == [16, 16, 16, 32, 40]
    assert pad_to_interval(3, 0, 40) == pad_to_interval(3, -1, 40) == 40
    assert buckets(1) == [1] and buckets(8) == [8, 4, 2, 1] and buckets(9) == [9, 8, 4, 2, 1]
    assert intervals(16, 40) == [40, 32, 16] and intervals(0, 40) == [40] and intervals(64, 40) == [40]


def test_what_the_encoder_leaves_is_not_in_the_pool_of_the_graphs(runner, monkeypatch):
    """There it would be overwritten by the next replay."""
    inside, seen = [], []

    @contextmanager
    def pool(_):
        inside.append(True)
        yield
        inside.pop()

    item = runner.loaded.shape.item(None, "image", 56, 56)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", pool)
    monkeypatch.setattr(runner, "encoder_pool", object())
    monkeypatch.setattr(runner_module, "encode", lambda *_: seen.append(list(inside)) or [torch.zeros(4, 64)])
    monkeypatch.setattr(runner.storage, "write", lambda *_: seen.append(list(inside)))
    runner.encode([torch.zeros(item.encoder_tokens, 1176)], [item], [None])
    assert seen == [[True], []]


def test_a_cpu_has_no_books_of_memory():
    assert MemoryMeter(CPU).read() == MemoryFigures(None, None, None, None)
