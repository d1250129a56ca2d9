"""Lanes that lie apart are stored together with their neighbours, and nothing else is written, nor too late."""

import re

import numpy as np
import pytest

from pullback.codegen import compile_assembly, emit_module
from pullback.target import Target
from pullback.tir import Buffer, If, PrimFunc, Var, loop, seq, store


def interleaved(n: int, stride: int, first: int, second: int, dtype: str = "float32", kind: str = "vectorized"):
    """``out[stride · i + first] = a[i]; out[stride · i + second] = b[i]`` for i below n."""
    size = stride * n + max(first, second) + 1
    a, b, out = Buffer("a", (n,), dtype), Buffer("b", (n,), dtype), Buffer("out", (size,), dtype)
    body = loop("i", n, lambda i: seq(
        store(out, i * stride + first, a[i] + a[i]), store(out, i * stride + second, b[i] * b[i])), kind)  # fmt: skip
    return PrimFunc("kernel", (a, b, out), body), n, size


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
@pytest.mark.parametrize(
    ("stride", "first", "second"),
    [(2, 0, 1), (2, 1, 0), (7, 3, 4), (7, 4, 3), (7, 0, 2), (2, 0, 3)],
    ids=str,
)
def test_neighbours(native, stride, first, second, dtype):
    """Side by side, in either order, and farther apart."""
    for n in (1, 3, 7, 8, 12, 16, 21, 40):
        func, n, size = interleaved(n, stride, first, second, dtype)
        a, b = np.arange(n).astype(dtype), (np.arange(n) % 11 + 1).astype(dtype)
        native.check(func, a, b, np.full(size, 9, dtype))


def test_rows_of_a_tile(native):
    """An unrolled loop of three rows: a pair, and one that has no neighbour."""
    a, out = Buffer("a", (3, 16)), Buffer("out", (16, 5))
    body = loop(
        "j", 16, lambda j: loop("r", 3, lambda r: store(out, (j, r + 1), a[r, j] * 2.0), "unrolled"), "vectorized"
    )
    native.check(
        PrimFunc("kernel", (a, out), body), np.arange(48, dtype="float32").reshape(3, 16), np.zeros((16, 5), "float32")
    )


def test_what_is_read_again_is_there(native):
    """A load of the buffer comes after the stores before it; so does a store to the same place."""
    a, out = Buffer("a", (16,)), Buffer("out", (64,))
    body = loop("i", 16, lambda i: seq(
        store(out, i * 4, a[i]), store(out, i * 4 + 2, out[i * 4] + 1.0), store(out, i * 4, a[i] * 3.0),
        store(out, i * 4 + 1, out[i * 4] + out[i * 4 + 2])), "vectorized")  # fmt: skip
    native.check(PrimFunc("kernel", (a, out), body), np.arange(16, dtype="float32"), np.zeros(64, "float32"))


def test_under_a_condition(native):
    """A store does not wait beyond the branch that it is in."""
    a, n, out = Buffer("a", (16,)), Var("n"), Buffer("out", (48,))
    body = loop("i", 16, lambda i: seq(
        If(n > 3, store(out, i * 3, a[i])), store(out, i * 3 + 1, a[i] + 1.0)), "vectorized")  # fmt: skip
    for value in (2, 5):
        native.check(
            PrimFunc("kernel", (a, n, out), body), np.arange(16, dtype="float32"), value, np.zeros(48, "float32")
        )


@pytest.mark.parametrize("cpu", ["haswell", "znver4"])
def test_are_one_store(cpu):
    """Pairs that lie far apart are 64 bits each, and those without gaps whole vectors."""
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    apart, near = (
        compile_assembly(emit_module([interleaved(16, stride, 0, 1)[0]], target), target) for stride in (40, 2)
    )
    assert len(re.findall(r"vmov[lh]p[sd]\s+%xmm\d+, ", apart)) == 16
    assert "vextractps" not in apart + near
    width = "ymm" if cpu == "haswell" else "zmm"
    assert len(re.findall(rf"vmovups\s+%{width}\d+, ", near)) == (4 if cpu == "haswell" else 2)


def test_masked_vectors_stay():
    """Where masks cost nothing, elements three apart are stored in vectors, not in pairs."""
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    text = compile_assembly(emit_module([interleaved(16, 3, 0, 1)[0]], target), target)
    assert len(re.findall(r"vmov[au]ps\s+%zmm\d+, .*{%k\d}", text)) == 6
