"""Contractions of half types: bfloat16 in pairs of terms, and float16."""

from __future__ import annotations

import itertools
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pullback import te, tir
from pullback.codegen import compile_assembly, emit_module
from pullback.ir.errors import DTypeError
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.problem.bfloat16_pairs import paired
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Machine
from pullback.target import Target
from pullback.te import interpreter as te_interpreter
from pullback.tir import pairs
from pullback.tir.expr import is_half
from pullback.tir.visitor import walk
from pullback.tir.workspace import lift_workspaces
from tests.schedule.native import natively
from tests.schedule.test_contraction import SHAPES, product
from tests.schedule.test_schedules import group_of, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SMALL = Machine(vector_bytes=16, registers=16, pair_dot=True)
SIZES = [(7, 9, 6), (5, 33, 7), (1, 20, 12), (17, 1, 10), (2, 3, 1), (40, 40, 65), (3, 130, 600)]


def matmul(m: int, n: int, k: int, left: bool = False, right: bool = False, dtype: str = "bfloat16") -> te.Tensor:
    """a·b, where the factors may lie transposed in memory."""
    a = te.placeholder((k, m) if left else (m, k), dtype, "a")
    b = te.placeholder((n, k) if right else (k, n), dtype, "b")
    axis = te.reduce_axis(k)

    def term(i, j):
        x = a[axis.var, i] if left else a[i, axis.var]
        y = b[j, axis.var] if right else b[axis.var, j]
        return tir.cast("float32", x) * tir.cast("float32", y)

    return te.compute((m, n), lambda i, j: te.sum(term(i, j), axis), "matmul")


def wide() -> Machine:
    """This machine, but for the instruction: where it has none, code does what the instruction would do."""
    target = Target("llvm")
    return Machine(target.vector_bytes, target.registers, pair_dot=True)


def check_natively(group) -> None:
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    (expected,) = te_interpreter.evaluate(group.outputs, feeds)
    (result,) = natively(group, feeds)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def is_paired(group) -> bool:
    problem = Problem.of(group.oriented)
    return problem is not None and paired(problem) is not problem


@pytest.mark.parametrize(("left", "right"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products(size, left, right):
    result, (m, n, k) = matmul(*size, left, right), size
    is_view = k % 2 == 0 and not left, k % 2 == 0 and right
    is_worth = (is_view[0] or n >= 4) and (is_view[1] or m >= 4) and k > 1
    assert is_paired(group_of(result, machine=SMALL)) == is_worth
    if is_worth and min(m, n) > 1:
        assert isinstance(recognize(group_of(result, machine=SMALL)), Contraction)
    if max(size) < 100:
        run(group_of(result, machine=SMALL))
    check_natively(group_of(result, machine=wide()))


def converted_where(kernel) -> list[str]:
    """The buffers for whose elements a kernel casts numbers of half types to float32."""
    stores = [n for n in walk(kernel.body) if isinstance(n, tir.BufferStore)]
    casts = [s for s in stores for n in walk(s.value) if isinstance(n, tir.Cast) and is_half(n.value.dtype)]
    return sorted({s.buffer.name for s in casts})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("left", "right"), list(itertools.product([False, True], repeat=2)))
def test_numbers_are_converted_once(left, right, dtype):
    """Where each is read often: in the copies of factors, not where they are multiplied."""
    machine = Machine(vector_bytes=16, registers=16)
    for rows, columns, at in ((3, 5, ["acc"]), (20, 36, ["panels", "wide"])):
        result = matmul(rows, columns, 12, left, False, dtype)
        assert converted_where(lower(group_of(result, machine=machine), "kernel")) == at
        result = matmul(rows, columns, 12, left, right, dtype)
        run(group_of(result, machine=machine))
        check_natively(group_of(result, machine=replace(wide(), pair_dot=False)))


def test_a_cast_matrix_is_turned_in_registers():
    """A stage before the sum may have its axes in another order than memory has them: copies follow memory."""
    b, axis = te.placeholder((36, 48), "float32", "b"), te.reduce_axis(48)
    narrow = te.compute((36, 48), lambda j, k: tir.cast("bfloat16", b[j, k]), "narrow")
    turned = te.compute((48, 36), lambda k, j: narrow[j, k], "turned")
    a = te.placeholder((40, 48), "bfloat16", "a")
    result = te.compute(
        (40, 36),
        lambda i, j: te.sum(tir.cast("float32", a[i, axis.var]) * tir.cast("float32", turned[axis.var, j]), axis),
    )
    for machine in (Machine(vector_bytes=32, registers=16), replace(wide(), pair_dot=False)):
        machine = replace(machine, second_bytes=0)  # else tasks would copy their own columns
        kernel = lower(group_of(result, machine=machine).oriented, "kernel")
        assert {"tile", "panels"} <= {n.buffer.name for n in walk(kernel.body) if isinstance(n, tir.BufferStore)}
        check_natively(group_of(result, machine=machine))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_convolutions_convert_once(kind, channels_last, dtype):
    machine, shape = Machine(vector_bytes=16, registers=16, without=("Winograd",)), (4, 8, 12, 12, 24, 3, 2, 1)
    group = group_of(product(kind, shape, channels_last, dtype=dtype), machine=machine)
    assert "acc" not in converted_where(lower(group, "kernel"))
    run(group)
    check_natively(
        group_of(product(kind, shape, channels_last, dtype=dtype), machine=replace(machine, vector_bytes=32))
    )


def test_what_was_float32_is_rounded_once_too():
    """A cast before the sum is taken with the one after it."""
    x, axis = te.placeholder((20, 12), "float32", "x"), te.reduce_axis(12)
    narrow = te.compute((20, 12), lambda i, k: tir.cast("bfloat16", x[i, k]), "narrow")
    w = te.placeholder((12, 36), "bfloat16", "w")
    result = te.compute(
        (20, 36),
        lambda i, j: te.sum(tir.cast("float32", narrow[i, axis.var]) * tir.cast("float32", w[axis.var, j]), axis),
    )
    machine = Machine(vector_bytes=16, registers=16)
    kernel = lower(group_of(result, machine=machine), "kernel")
    assert converted_where(kernel) == ["panels", "wide"]
    assert [b.shape for b in kernel.params] == [(240,), (12, 36), (20, 36)]  # what is copied whole has one axis
    run(group_of(result, machine=machine))
    check_natively(group_of(result, machine=replace(wide(), pair_dot=False)))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions(shape, kind, channels_last):
    group = group_of(product(kind, shape, channels_last, dtype="bfloat16"), machine=SMALL)
    assert isinstance(recognize(group), Contraction)
    run(group)
    check_natively(group_of(product(kind, shape, channels_last, dtype="bfloat16"), machine=wide()))


@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_are_paired_along_channels_or_images(kind, stride):
    group = group_of(product(kind, (2, 8, 6, 6, 8, 3, stride, 1), True, dtype="bfloat16"), machine=SMALL)
    assert is_paired(group)
    run(group)


def test_what_is_computed_before_the_sum_is_paired_too():
    x = te.placeholder((9, 8), "float32", "x")
    narrow = te.compute((9, 8), lambda i, k: tir.cast("bfloat16", x[i, k] * 2.0), "narrow")
    w, axis = te.placeholder((8, 7), "bfloat16", "w"), te.reduce_axis(8)
    result = te.compute(
        (9, 7),
        lambda i, j: te.sum(tir.cast("float32", narrow[i, axis.var]) * tir.cast("float32", w[axis.var, j]), axis),
    )
    group = group_of(result, machine=SMALL)
    assert is_paired(group)
    run(group)
    check_natively(group_of(result, machine=wide()))


@pytest.mark.parametrize("k", [4, 5])
def test_an_infinite_neighbour_of_the_last_term_does_not_leak(k):
    """An odd last term is paired with 0 on both sides: 0 times infinity would be NaN."""
    group = group_of(matmul(3, 6, k), machine=wide())
    feeds = {t: np.ones(t.shape, BFLOAT16) for t in group.inputs}
    a, b = feeds.values()
    a[1, 0], b[0, 2] = np.inf, np.inf
    (result,) = natively(group, feeds)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(result, expected)


def test_only_bfloat16_where_there_is_the_instruction():
    assert not is_paired(group_of(matmul(4, 4, 4, dtype="float16"), machine=SMALL))
    assert not is_paired(group_of(matmul(4, 4, 4), machine=Machine(vector_bytes=16, registers=16)))


def test_the_instruction():
    """Two roundings, the upper halves first; natively by the CPU's instruction or by its expansion."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0x3C00, 0x4200, (2, 37), np.uint16).astype(np.uint32) for _ in range(2))
    a, b = a[0] | a[1] << 16, b[0] | b[1] << 16
    c = rng.standard_normal(37).astype(np.float32)
    inputs = [te.placeholder((37,), d, n) for d, n in (("uint32", "a"), ("uint32", "b"), ("float32", "c"))]
    result = te.compute((37,), lambda i: pairs.pair_dot(*(x[i] for x in inputs)))
    (native,) = natively(group_of(result, machine=wide()), dict(zip(inputs, (a, b, c), strict=True)))
    np.testing.assert_allclose(native, pairs.evaluate(pairs.DOT, a, b, c), rtol=3e-7)
    low, high = (
        (w << 16).view(np.float32).astype(float) * (v << 16).view(np.float32) for w, v in ((a, b), (a >> 16, b >> 16))
    )
    np.testing.assert_allclose(native, low + high + c, rtol=1e-5, atol=1e-6)


def test_other_types_are_refused():
    x, y = te.placeholder((4,), "float16", "x"), te.placeholder((4,), "uint32", "y")
    with pytest.raises(DTypeError, match="pair takes bfloat16, bfloat16, got float16, float16"):
        pairs.pair(x[0], x[1])
    with pytest.raises(DTypeError, match="pair_dot takes uint32, uint32, float32, got uint32, uint32, uint32"):
        pairs.pair_dot(y[0], y[0], y[0])


DOTS = {  # the first pair: what lies in memory, and what does not
    "memory": lambda a, i: a[3],
    "lanes": lambda a, i: a[i],
    "inverted": lambda a, i: ~a[3],
    "number": lambda a, i: tir.const(0x3F803F80, "uint32"),
    "chosen": lambda a, i: tir.select(i < 5, a[3], a[4]),
}


@pytest.mark.parametrize("form", DOTS)
def test_a_dot_of_any_first_pair(form):
    """In one vector, where the instruction may read its pair from memory, and in several."""
    rng = np.random.default_rng(0)
    for count in (9, 16, 40):
        a, b = (rng.integers(0x3F803F80, 0x40004000, count, np.uint32) & 0xFFFF7FFF for _ in range(2))
        a_, b_ = te.placeholder((count,), "uint32", "a"), te.placeholder((count,), "uint32", "b")
        result = te.compute((count,), lambda i: pairs.pair_dot(DOTS[form](a_, i), b_[i], tir.const(1.0, "float32")))  # noqa: B023
        group = group_of(result, machine=wide())
        feeds = {t: {a_: a, b_: b}[t] for t in group.inputs}
        (expected,) = te_interpreter.evaluate(group.outputs, feeds)
        np.testing.assert_allclose(natively(group, feeds)[0], expected, rtol=3e-7)


@pytest.mark.parametrize(("cpu", "is_there"), [("znver4", True), ("x86-64-v4", False), ("x86-64-v3", False)])
def test_the_instruction_is_written_where_the_cpu_has_it(cpu, is_there):
    """Also where a schedule took pairs, and for the form that reads memory."""
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    kernel, _ = lift_workspaces(lower(group_of(matmul(16, 16, 32), machine=Machine(64, 32, pair_dot=True)), "kernel"))
    assert ("vdpbf16ps" in compile_assembly(emit_module([kernel], target), target)) == is_there


def test_a_pair_is_read_as_one_number():
    x = te.placeholder((12,), "bfloat16", "x")
    data = np.arange(12, dtype=np.float32).astype(BFLOAT16)
    together = te.compute((6,), lambda i: pairs.pair(x[i * 2], x[i * 2 + 1]))
    apart = te.compute((6,), lambda i: pairs.pair(x[i], x[i + 6]))
    first, second = (natively(group_of(r, machine=wide()), {x: data})[0] for r in (together, apart))
    np.testing.assert_array_equal(first, data.view(np.uint32))
    np.testing.assert_array_equal(second, pairs.evaluate(pairs.PAIR, data[:6], data[6:]))
