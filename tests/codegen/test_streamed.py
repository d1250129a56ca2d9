"""Stores past the caches: where they are made, and that all elements arrive whatever the alignment."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.codegen import compile_assembly, compile_object, emit_module, load_object
from pullback.ir.errors import UserError
from pullback.target import Target
from pullback.tir import Buffer, PrimFunc, loop, store
from pullback.tir.in_place import share

ROWS = 6
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="


def kernel(columns: int, dtype: str = "float32", kind: str = "parallel") -> PrimFunc:
    x, y = Buffer("x", (ROWS, columns), dtype), Buffer("y", (ROWS, columns), dtype)
    body = loop(
        "i", ROWS, lambda i: loop("j", columns, lambda j: store(y, (i, j), x[i, j] + x[i, j]), "vectorized"), kind
    )
    return PrimFunc("twice", (x, y), body, {"streamed": (1,)})


def runs(target: Target) -> bool:
    """Whether this machine has the CPU's instructions."""
    host = Target("llvm")
    return host.arch == "x86_64" and host.vector_bytes >= target.vector_bytes


@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("columns", [64, 70])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_all_elements_arrive(native, cpu: str, columns: int, dtype: str) -> None:
    target, func = Target(X86 + cpu), kernel(columns, dtype)
    if not runs(target):
        pytest.skip(f"this machine has not the instructions of {cpu}")
    library = load_object(compile_object(emit_module([func], target), target))
    x = np.arange(ROWS * columns).reshape(ROWS, columns).astype(dtype)
    for offset in (0, 1, 4):
        memory = np.full(x.size + 160, 9, dtype)
        first = -memory.ctypes.data % 64 // memory.itemsize + offset
        y = memory[first : first + x.size]
        native.call(library, func, [x, y])
        np.testing.assert_array_equal(y.reshape(x.shape), x + x)
        assert (memory[:first] == 9).all() and (memory[first + x.size :] == 9).all()


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_only_where_vectors_begin_at_their_size(kind: str) -> None:
    def text(columns: int, target: str) -> str:
        return compile_assembly(emit_module([kernel(columns, kind=kind)], Target(target)), Target(target))

    assert "movntps" in text(64, X86 + "haswell") and "sfence" in text(64, X86 + "haswell")
    for columns in (70, 68):  # of 68, the last four would be a vector of their own, in a line of others
        assert "movnt" not in text(columns, X86 + "haswell")
    assert "stnp" not in text(64, "llvm -mtriple=aarch64-linux-gnu")


@pytest.mark.parametrize("numbers", [(2,), (-1,), ("y",), 1])
def test_only_buffers_of_the_function_can_be_streamed(numbers) -> None:
    x, y = Buffer("x", (4,)), Buffer("y", (4,))
    message = r"f: the attribute 'streamed' names buffers by their numbers as parameters, a tuple out of \(0, 1\)"
    with pytest.raises(UserError, match=message):
        PrimFunc("f", (x, y), store(y, 0, 1.0), {"streamed": numbers})


def test_what_takes_the_memory_of_an_input_is_in_the_caches() -> None:
    x, y, z = (Buffer(name, (64,), "float32") for name in "xyz")

    def body(i):
        return store(y, (i,), x[i] + x[i])

    func = PrimFunc("f", (x, y, z), loop("i", 64, body, "vectorized"), {"streamed": (1, 2), "scheduled": True})
    shared = share(func, "g", {y: x})
    assert shared.params == (x, z) and dict(shared.attrs) == {"streamed": (1,), "scheduled": True}
    assert "streamed" not in share(func, "g", {y: x, z: x}).attrs
