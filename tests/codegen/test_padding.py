"""What lies behind the rows of local buffers: it is computed with, and must be no number that takes long."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pullback.codegen import compile_object, emit_module, load_object
from pullback.codegen.memory import STACK_LIMIT
from pullback.target import Target
from pullback.tir import Allocate, Buffer, PrimFunc, Stmt, const, fma, loop, seq, store

HOST = Target("llvm")
ROWS = 64
DENORMAL = 2  # the bit of MXCSR that says an operand was subnormal
CONTROL = """
target triple = "{triple}"
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @get(ptr %word) {{
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  ret void
}}
define void @set(ptr %word) {{
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}}
"""


def sums(name: str, columns: int, dtype: str) -> PrimFunc:
    """y[j] = Σ x[r, j]² by way of a local copy of x, written in whole vectors, of which the last one begins earlier."""
    x, y = Buffer("x", (ROWS, columns), dtype), Buffer("y", (columns,), dtype)
    copy, acc = Buffer("copy", (ROWS, columns), dtype, "local"), Buffer("acc", (columns,), dtype, "local")
    lanes = min(columns, HOST.lanes(dtype))
    starts = [*range(0, columns - lanes, lanes), columns - lanes]

    def move(r, start: int) -> Stmt:
        return loop("lane", lanes, lambda j: store(copy, (r, j + start), x[r, j + start]), "vectorized")

    fill = loop("r", ROWS, lambda r: seq(*(move(r, start) for start in starts)))
    zero = loop("j", columns, lambda j: store(acc, j, const(0, dtype)), "vectorized")
    add = loop("j", columns, lambda j: loop("r", ROWS, lambda r: store(acc, j, fma(copy[r, j], copy[r, j], acc[j]))),
               "vectorized")  # fmt: skip
    keep = loop("j", columns, lambda j: store(y, j, acc[j]), "vectorized")
    return PrimFunc(name, (x, y), Allocate(copy, Allocate(acc, seq(fill, zero, add, keep))))


@pytest.mark.skipif(HOST.arch != "x86_64", reason="the flags of x86-64 say what was computed with")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 3, 5, 9, 16, 17, 25, 30, 31, 33])
def test_no_subnormal_is_computed_with(native, columns: int, dtype: str) -> None:
    """A call leaves the stack full of subnormal numbers; the next one meets none of them."""
    control = load_object(compile_object(CONTROL.format(triple=HOST.triple), HOST))
    get, set_ = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(control.address(name)) for name in ("get", "set"))
    dirty, func = sums("dirty", 8 * HOST.lanes(dtype), dtype), sums("sums", columns, dtype)
    library, word = native.load([dirty, func]), ctypes.c_uint32()
    tiny = np.full((ROWS, 8 * HOST.lanes(dtype)), np.finfo(dtype).smallest_subnormal * 1000, dtype)
    x = np.random.default_rng(0).standard_normal((ROWS, columns)).astype(dtype)
    flags, found = [], np.zeros(columns, dtype)
    for called, given, result in ((dirty, tiny, tiny[0].copy()), (func, x, found)):
        set_(ctypes.byref(ctypes.c_uint32(0x1F80)))
        native.call(library, called, [given, result])
        get(ctypes.byref(word))
        flags.append(word.value & DENORMAL)
    assert flags == [DENORMAL, 0]
    np.testing.assert_allclose(found, (x.astype(np.float64) ** 2).sum(0), rtol=1e-5)


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_what_lies_behind_the_last_row_takes_nothing_from_the_limit(cpu: str) -> None:
    """A local buffer may be as large as the limit says, whatever the code generator puts behind it."""
    columns = STACK_LIMIT // 4 // ROWS
    x, y = Buffer("x", (ROWS, columns)), Buffer("y", (ROWS, columns))
    copy = Buffer("copy", (ROWS, columns), "float32", "local")

    def row(r, source: Buffer, target: Buffer) -> Stmt:
        return loop("j", columns, lambda j: store(target, (r, j), source[r, j]), "vectorized")

    def move(source: Buffer, target: Buffer) -> Stmt:
        return loop("r", ROWS, lambda r: row(r, source, target))

    func = PrimFunc("f", (x, y), Allocate(copy, seq(move(x, copy), move(copy, y))))
    assert emit_module([func], Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"))


def part_of_rows(row: int, first: int, columns: int) -> PrimFunc:
    """y[j] = Σ x[place[r], first + j], of rows at places that nobody knows."""
    place, x, y = Buffer("place", (ROWS,), "int64"), Buffer("x", (ROWS, row)), Buffer("y", (columns,))
    acc = Buffer("acc", (columns,), "float32", "local")
    zero = loop("j", columns, lambda j: store(acc, j, 0.0), "vectorized")
    add = loop("r", ROWS, lambda r: loop("j", columns, lambda j: store(acc, j, acc[j] + x[place[r], first + j]),
                                         "vectorized"))  # fmt: skip
    keep = loop("j", columns, lambda j: store(y, j, acc[j]), "vectorized")
    return PrimFunc("part", (place, x, y), Allocate(acc, seq(zero, add, keep)))


@pytest.mark.parametrize("row, first, columns, is_whole", [
    (16, 0, 3, True), (16, 12, 3, True), (16, 13, 3, False), (3, 0, 3, False), (16, 4, 11, True), (16, 5, 11, False),
])  # fmt: skip
def test_lanes_that_a_row_has_room_for_are_loaded_too(native, row, first, columns, is_whole) -> None:
    """One load instead of two, or of a mask, wherever in memory the row is: a part of a row is inside of it."""
    func = part_of_rows(row, first, columns)
    text = emit_module([func], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"))
    parts = text.count("load <3 x float>") + text.count("call <4 x float> @llvm.masked.load")
    assert (parts == 0) == is_whole
    generator = np.random.default_rng(row)
    place, x = generator.permutation(ROWS).astype("int64"), generator.standard_normal((ROWS, row)).astype("float32")
    native.check(func, place, x, np.zeros(columns, "float32"))


def lanes_over(filled: float, columns: int, through: bool = False) -> PrimFunc:
    """y[k] += Σ_r part[k]: x[r, …] in some lanes and a number in others; ``through``: x[r, …] + 1."""
    x, y = Buffer("x", (ROWS, columns)), Buffer("y", (16,))
    part = Buffer("part", (16,), "float32", "local")

    def row(r) -> Stmt:
        element = lambda j: x[r, j] + 1.0 if through else x[r, j]  # noqa: E731
        return seq(
            loop("k", 16, lambda k: store(part, k, filled), "vectorized"),
            loop("j", columns, lambda j: store(part, j, element(j)), "vectorized"),
            loop("k", 16, lambda k: store(y, k, y[k] + part[k]), "vectorized"),
        )

    return PrimFunc("over", (x, y), Allocate(part, loop("r", ROWS, row)))


@pytest.mark.parametrize(
    ("filled", "columns", "through", "is_blended"),
    [(0.0, 13, False, False), (0.0, 13, True, True), (-0.0, 13, False, True), (1.0, 13, False, True)],
)
def test_a_part_that_is_loaded_over_zeros_is_no_blend(native, filled, columns, through, is_blended) -> None:
    """Its other lanes are zeros already; but not those of what is computed, and not negative ones."""
    func = lanes_over(filled, columns, through)
    text = emit_module([func], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"))
    assert (" select " in text) == is_blended
    x = np.random.default_rng(1).standard_normal((ROWS, columns)).astype("float32")
    (_, y) = native.check(func, x, np.zeros(16, "float32"))
    assert (y[columns:] == filled * ROWS).all()


def test_zeros_of_fewer_lanes_are_not_all_that_a_part_lies_over(native) -> None:
    """The lanes behind them are what they were."""
    x, y = Buffer("x", (ROWS, 13)), Buffer("y", (16,))
    part = Buffer("part", (16,), "float32", "local")

    def row(r) -> Stmt:
        return seq(
            loop("k", 16, lambda k: store(part, k, 1.0), "vectorized"),
            loop("k", 8, lambda k: store(part, k, 0.0), "vectorized"),
            loop("j", 13, lambda j: store(part, j, x[r, j]), "vectorized"),
            loop("k", 16, lambda k: store(y, k, y[k] + part[k]), "vectorized"),
        )

    func = PrimFunc("behind", (x, y), Allocate(part, loop("r", ROWS, row)))
    (_, total) = native.check(func, np.zeros((ROWS, 13), "float32"), np.zeros(16, "float32"))
    assert (total[13:] == ROWS).all()
