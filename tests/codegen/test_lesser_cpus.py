"""Half types and short vectors on CPUs without instructions for them, run on this machine."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pullback.codegen import compile_assembly, emit_module
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    PrimFunc,
    Var,
    as_expr,
    call,
    cast,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)  # fmt: skip

HOST = Target("llvm")
pytestmark = pytest.mark.skipif(HOST.arch != "x86_64" or HOST.vector_bytes < 32, reason="needs x86-64 with AVX2")
CPUS = ["x86-64-v2", "haswell"]


def target_of(cpu: str) -> Target:
    return Target(f"llvm -mtriple={HOST.triple} -mcpu={cpu}")


@pytest.mark.parametrize("cpu", CPUS)
def test_rounding_to_bfloat16(cpu, native):
    """Of every upper half with each kind of lower half: ties, what overflows, and NaN of every payload stays NaN."""
    upper = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    wide = (upper[:, None] | lower).reshape(-1).view(np.float32)
    y, z = Buffer("y", wide.shape), Buffer("z", wide.shape, "bfloat16")
    kernel = PrimFunc("f", (y, z), loop("i", wide.size, lambda i: store(z, i, cast("bfloat16", y[i])), "vectorized"))
    library = native.load([kernel], target_of(cpu))
    _, rounded = native.check(kernel, wide, np.zeros(wide.shape, numpy_dtype("bfloat16")), library=library)
    assert np.array_equal(np.isnan(rounded.astype(np.float32)), np.isnan(wide))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cpu", CPUS)
def test_what_needs_no_rounding_is_exact(cpu, dtype, native):
    """Maxima, minima and whole parts of all numbers, the subnormal ones too; and what selects of these, computed as
    float32, beside constants that are numbers of the type and such that are not."""
    every = np.arange(2**16, dtype=np.uint16)
    a, b = every.view(numpy_dtype(dtype)), np.random.default_rng(0).permutation(every).view(numpy_dtype(dtype))
    x, y, z = (Buffer(name, a.shape, dtype) for name in "xyz")
    values = {"max": maximum, "min": minimum} | {
        name: (lambda u, v, name=name: call(name, u)) for name in ("abs", "floor", "ceil", "trunc", "round")
    }
    wide = {
        "relu": lambda u, v: select(u < 0.0, 0.0, u),
        "larger": lambda u, v: select(u > v, minimum(u, 1.5), call("abs", v)),
        "rounded constant": lambda u, v: select(u > v, u, 1.0009765625),
        "rounded maximum": lambda u, v: maximum(u, v * 1.0009765625),
    }
    values |= {
        name: (lambda u, v, f=f: cast(dtype, f(cast("float32", u), cast("float32", v)))) for name, f in wide.items()
    }
    kernels = [
        PrimFunc(
            name.replace(" ", "_"),
            (x, y, z),
            loop("i", a.size, lambda i, f=f: store(z, i, f(x[i], y[i])), "vectorized"),
        )
        for name, f in values.items()
    ]
    library = native.load(kernels, target_of(cpu))
    for kernel in kernels:
        native.check(kernel, a, b, np.zeros_like(a), library=library)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "float32", "int32", "float64"])
@pytest.mark.parametrize("cpu", [*CPUS, None])
def test_short_vectors(cpu, dtype, native):
    """A known number of lanes: nothing around them is written, no lane is moved by itself, and no store is masked: that
    takes as long as ten others."""
    target, kind = target_of(cpu) if cpu else HOST, numpy_dtype(dtype)
    source = np.random.default_rng(0).integers(0, 2, (3, 40)).astype(kind)
    for lanes in range(1, 17):
        x, y, i = Buffer("x", (3, 40), dtype), Buffer("y", (3, 40), dtype), Var("i")
        body = For(i, as_expr(lanes), store(y, (1, i + 5), x[2, i + 7]), "vectorized")
        kernel = PrimFunc("f", (x, y), body)
        native.check(kernel, source, np.zeros((3, 40), kind), library=native.load([kernel], target))
        if cpu == "haswell":
            text = compile_assembly(emit_module([kernel], target), target)
            assert lanes != 6 or "pextrb" not in text
            assert not re.search(r"maskmov\w+\s+%\w+, %\w+, .*\(", text)


def through_local_rows(dtype: str, lanes: int) -> PrimFunc:
    x, y, own = Buffer("x", (4, 30), dtype), Buffer("y", (4, 30), dtype), Buffer("own", (4, 30), dtype, "local")

    def some(j):
        return loop("i", lanes, lambda i: store(own, (j, i + 9), x[j, i + 2]), "vectorized")

    def rows(one):
        return loop("j", 4, lambda j: loop("i", 30, lambda i: one(j, i), "vectorized"))

    filled = rows(lambda j, i: store(own, (j, i), cast(dtype, j + 100)))
    results = rows(lambda j, i: store(y, (j, i), own[j, i]))
    return PrimFunc("f", (x, y), Allocate(own, seq(filled, loop("j", 4, some), results)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("cpu", [*CPUS, None])
def test_short_vectors_of_local_rows(cpu, dtype, native):
    """A known number of lanes in the middle of local rows, one after another: what is around them stays, and no store
    is masked, nor becomes so where a vector is blended with what was there."""
    target, kind = target_of(cpu) if cpu else HOST, numpy_dtype(dtype)
    source = np.random.default_rng(0).integers(1, 99, (4, 30)).astype(kind)
    for lanes in range(1, 17):
        kernel = through_local_rows(dtype, lanes)
        native.check(kernel, source, np.zeros((4, 30), kind), library=native.load([kernel], target))
        if cpu == "haswell":
            text = compile_assembly(emit_module([kernel], target), target)
            assert not re.search(r"maskmov\w+\s+%\w+, %\w+, .*\(", text)
