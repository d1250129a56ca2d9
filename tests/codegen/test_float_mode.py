"""Host functions that take subnormal numbers for zeros, and what that leaves alone."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pullback.codegen import emit_module
from pullback.runtime.library import get_num_threads, runtime_table, set_num_threads
from pullback.target import Target
from pullback.tir import Buffer, KernelCall, PrimFunc, cast, loop, store
from pullback.tir.stmt import FLUSH_SUBNORMALS

HOST = Target("llvm")
needs_mode = pytest.mark.skipif(HOST.arch not in ("x86_64", "aarch64"), reason="this CPU has no mode to set")
COUNT = 1000
SMALLEST = np.finfo(np.float32).smallest_normal
INPUTS = {
    "operands": SMALLEST / np.float32(2) * np.linspace(0.1, 1, COUNT, dtype=np.float32),  # doubled, some are normal
    "results": SMALLEST * np.linspace(1, 1.9, COUNT, dtype=np.float32),  # normal, but not halved
}
FACTORS = {"operands": 2.0, "results": 0.5}


def functions(factor: float, kind: str = "parallel") -> list[PrimFunc]:
    """y = factor·x, by a host function that flushes and by one that doesn't."""
    x, y, a, b = (Buffer(name, (COUNT,)) for name in "xyab")
    kernel = PrimFunc("scale", (x, y), loop("i", COUNT, lambda i: store(y, i, x[i] * factor), kind))
    hosts = [
        PrimFunc(name, (a, b), KernelCall("scale", (a, b)), {"kind": "host"} | attrs)
        for name, attrs in (("flushing", {FLUSH_SUBNORMALS: True}), ("keeping", {}))
    ]
    return [kernel, *hosts]


@needs_mode
@pytest.mark.parametrize("which", ["operands", "results"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_threads_follow_and_go_back(native, which: str, threads: int) -> None:
    """Operands and results; and the same workers keep subnormals when the next caller does, as this thread does."""
    x, factor = INPUTS[which], FACTORS[which]
    library, before = native.load(functions(factor)), get_num_threads()
    set_num_threads(threads)
    try:
        for _ in range(20):
            for name in ("flushing", "keeping"):
                y = np.full(COUNT, np.nan, np.float32)
                pointers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
                call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(library.address(name))
                assert call(runtime_table(), pointers, None, None) == 0
                np.testing.assert_array_equal(y, 0 * x if name == "flushing" else x * np.float32(factor))
    finally:
        set_num_threads(before)
    assert (INPUTS["results"] * np.float32(0.5)).all(), "the caller's own arithmetic is as it was"


@needs_mode
@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell", None])
def test_subnormals_of_half_precision_are_numbers(native, cpu: str | None) -> None:
    """float16's smallest numbers are normal float32: every one of them is converted, and rounded, as it was."""
    if cpu and (HOST.arch != "x86_64" or HOST.vector_bytes < 32):
        pytest.skip("needs x86-64 with AVX2")
    bits, dtype = np.arange(2**16, dtype=np.uint16), "float16"
    size = bits.size
    x, wide, y = Buffer("x", (size,), dtype), Buffer("wide", (size,)), Buffer("y", (size,), dtype)
    kernels = [
        PrimFunc("widen", (x, wide), loop("i", size, lambda i: store(wide, i, cast("float32", x[i])), "vectorized")),
        PrimFunc("narrow", (wide, y), loop("i", size, lambda i: store(y, i, cast(dtype, wide[i])), "vectorized")),
    ]
    calls = [KernelCall("widen", (x, wide)), KernelCall("narrow", (wide, y))]
    hosts = [
        PrimFunc(f"main{k}", call.buffers, call, {"kind": "host", FLUSH_SUBNORMALS: True})
        for k, call in enumerate(calls)
    ]
    target = Target(f"llvm -mtriple={HOST.triple} -mcpu={cpu}") if cpu else HOST
    library = native.load([*kernels, *hosts], target)
    given, between, back = bits.view(np.float16), np.zeros(bits.shape, np.float32), np.zeros(bits.shape, np.float16)
    native.host(library, "main0", [given, between])
    np.testing.assert_array_equal(between, given.astype(np.float32))
    native.host(library, "main1", [between, back])
    np.testing.assert_array_equal(back, given)


def test_where_there_is_no_mode_nothing_is_set() -> None:
    for triple, names in (
        ("riscv64-linux-gnu", ()), ("wasm32-unknown-unknown", ()), ("armv7-linux-gnueabihf", ()),
        ("aarch64-linux-gnu", ("get.fpcr", "set.fpcr")), ("x86_64-linux-gnu", ("stmxcsr", "ldmxcsr")),
    ):  # fmt: skip
        flushing, keeping = functions(2.0, "vectorized")[1:]
        target = Target(f"llvm -mtriple={triple}")
        text = emit_module([functions(2.0, "vectorized")[0], flushing], target)
        assert all(name in text for name in names) and ("fpcr" in text or "mxcsr" in text) == bool(names), triple
        assert "fpcr" not in (plain := emit_module([functions(2.0)[0], keeping], target)) and "mxcsr" not in plain
