"""The attention kernels without a GPU: run in Triton's interpreter beside an oracle, and compiled for Hopper."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the live half needs torch")
triton = pytest.importorskip("triton", reason="no Triton for this platform: its kernels cannot be tested here")

import torch  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from executor import triton_attention, triton_kernels  # noqa: E402

HERE = Path(__file__).parent
HOPPER = GPUTarget("cuda", 90, 32)
SHARED_BYTES = 227 * 1024  # what a block may have on sm_90
POINTERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
IN_DTYPE = {"query", "keys", "values", "out"}
FLOATS = {"parts", "weights"}
INTEGERS = {"tables", "query_starts", "kv_lens", "block_sequences", "block_firsts"}
ALIGNED = {"query_stride", "query_head_stride", "out_stride", "page_stride", "token_stride"}
MODELS = {"qwen2-vl-2b": (12, 2, 128), "qwen2-vl-7b": (28, 4, 128)}  # heads, kv heads, head dim


@pytest.fixture(scope="module")
def interpreted():
    """Errors by case, from a process of its own: TRITON_INTERPRET must be set before triton is imported."""
    paths = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, HERE / "triton_interpreted.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kernels_give_what_the_oracle_gives(interpreted):
    exact = {case: error for case, error in interpreted.items() if case != "float16"}
    assert len(exact) == 12 and {case: error for case, error in exact.items() if not 0 < error <= 1e-6} == {}


def test_half_precision_is_as_good_as_its_last_digit(interpreted):
    assert 0 < interpreted["float16"] <= 2e-3


def compiled(kernel, constants, shape_of_launch, dtype):
    """The kernel for sm_90, with the facts about its arguments that a launch would find: alignment by 16."""
    kinds = dict.fromkeys(IN_DTYPE, POINTERS[dtype]) | dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys(INTEGERS, "*i32")
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else kinds.get(n, "fp32" if n == "scale" else "i32") for n in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in ALIGNED or n in kinds}
    warps, stages = shape_of_launch
    options = {"num_warps": warps, "num_stages": stages}
    return triton.compile(ASTSource(kernel, signature, constants, aligned), target=HOPPER, options=options)


def spills(kernel, folder):
    """Whether registers did not suffice, by the disassembler that comes with Triton."""
    binary = folder / "kernel.cubin"
    binary.write_bytes(kernel.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    usage = subprocess.run([tool, "-res-usage", binary], capture_output=True, text=True, check=True).stdout
    assert "REG:" in usage
    return "STACK:0" not in usage or "LOCAL:0" not in usage


def chunk_launch(heads, kv_heads, dim, dtype, tokens):
    group = heads // kv_heads
    shape = triton_attention.chunk_shape(group, dim, dtype, tokens * kv_heads, processors=132)
    constants = {"G": group, "D": dim, "WIDTH": dim, "PAGE": 16, "TOKENS": shape.rows // group}
    constants |= {"ROWS": shape.rows, "TILE": shape.tile}
    return triton_kernels.paged_varlen, constants, (shape.warps, shape.stages)


def decode_launch(heads, kv_heads, dim, dtype, batch):
    group = heads // kv_heads
    shape = triton_attention.decode_shape(group, dim, dtype)
    splits, least = triton_attention.num_splits(batch * kv_heads, 32768, shape.tile, processors=132)
    constants = {"G": group, "D": dim, "WIDTH": dim, "PAGE": 16, "ROWS": shape.rows, "TILE": shape.tile}
    constants |= {"SPLITS": splits, "LEAST": least}
    return triton_kernels.paged_decode, constants, (shape.warps, shape.stages)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("launch", [(chunk_launch, 256), (chunk_launch, 4096), (decode_launch, 64)])
def test_kernels_of_true_shapes_fit_a_hopper(model, launch, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    make, size = launch
    kernel = compiled(*make(*MODELS[model], torch.bfloat16, size), torch.bfloat16)
    assert 0 < kernel.metadata.shared <= SHARED_BYTES
    assert "mma" in kernel.asm["ptx"]  # on tensor cores
    assert not spills(kernel, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("launch", [(chunk_launch, 4096), (decode_launch, 64)])
def test_kernels_of_other_dtypes_fit_a_hopper(dtype, launch, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    make, size = launch
    assert 0 < compiled(*make(28, 4, 128, dtype, size), dtype).metadata.shared <= SHARED_BYTES


@pytest.mark.parametrize("splits", [1, 64])
def test_reduction_fits_a_hopper(splits, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    constants = {"D": 128, "WIDTH": 128, "SPLITS": splits}
    kernel = compiled(triton_kernels.paged_decode_reduce, constants, (4, 3), torch.bfloat16)
    assert kernel.metadata.shared <= SHARED_BYTES and not spills(kernel, tmp_path)
