"""Scalars of the loop IR: the types that each node takes, and constants folded on the way."""

from __future__ import annotations

from typing import Any

import pytest

from pullback import tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    FloatImm,
    IntImm,
    Select,
    Var,
    as_expr,
    binary,
    call,
    cast,
    const,
    select,
)
from pullback.tir.specialize import specialize
from pullback.tir.stmt import BufferStore, For, Let, PrimFunc, seq, store

I, J, X, B = Var("i"), Var("j", "int32"), Var("x", "float32"), Var("b", "bool")  # noqa: E741
A = Buffer("A", (4,))


@pytest.mark.parametrize("build, message", [
    (lambda: I + J, "int64 and int32: cast one side"),
    (lambda: binary("add", I, X), "cast one side"),
    (lambda: I + 0.5, "the Python float 0.5 cannot become int64"),
    (lambda: binary("and", I, I), "logical and needs bool, not int64"),
    (lambda: binary("bitand", X, X), "needs integers, not float32"),
    (lambda: Select(I, X, X), r"select\(int64, float32, float32\)"),
    (lambda: Select(B, X, I), r"select\(bool, float32, int64\)"),
    (lambda: IntImm(1, "float32"), "an integer constant needs an integer or bool dtype, not float32"),
    (lambda: FloatImm(1.0, "int32"), "a floating-point constant needs a float dtype, not int32"),
    (lambda: const(1, "int31"), "an integer constant needs an integer or bool dtype, not int31"),
    (lambda: Var("v", "int31"), "unknown dtype 'int31'"),
    (lambda: cast("int31", I), "unknown dtype 'int31'"),
    (lambda: as_expr("i"), "not a scalar: 'i'"),
    (lambda: as_expr(None), "not a scalar: None"),
    (lambda: A[X], "an index of A must be an integer, got float32"),
    (lambda: BufferStore(A, I, (I,)), "storing int64 in A, which holds float32"),
    (lambda: Let(X, I, seq()), "let x: float32 = int64"),
])  # fmt: skip
def test_types_are_looked_at(build: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        build()


def test_a_scalar_has_no_truth_value() -> None:
    with pytest.raises(UserError, match="no truth value at compile time"):
        bool(I < 3)


@pytest.mark.parametrize("kind, a, b, value", [
    ("add", 7, -2, 5), ("sub", 7, -2, 9), ("mul", 7, -2, -14), ("floordiv", 7, -2, -4), ("floormod", 7, -2, -1),
    ("floordiv", -7, 2, -4), ("floormod", -7, 2, 1), ("min", 7, -2, -2), ("max", 7, -2, 7),
])  # fmt: skip
def test_constants_are_folded(kind: str, a: int, b: int, value: int) -> None:
    folded = binary(kind, const(a, "int64"), const(b, "int64"))
    assert isinstance(folded, IntImm) and folded.value == value and folded.dtype == "int64"


def test_neutral_operands_are_left_out() -> None:
    for same in (I + 0, 0 + I, I - 0, I * 1, 1 * I, I // 1):
        assert same is I
    for zero in (I * 0, 0 * I, I % 1):
        assert isinstance(zero, IntImm) and zero.value == 0
    for kept in (X + 0.0, X * 0.0, I - 1, I // 2, I % 2):
        assert isinstance(kept, Binary)  # of floats: -0.0 + 0.0 is 0.0, NaN times 0.0 is NaN
    assert (I + cast("int64", J)).dtype == "int64"


def test_results_of_comparisons_and_casts() -> None:
    assert (I < 3).dtype == (I.equal(3)).dtype == "bool" and cast("float32", I).dtype == "float32"
    assert cast("int64", I) is I and select(B, X, 2.0).dtype == "float32" and call("exp", X).dtype == "float32"
    load = A[I]
    assert isinstance(load, BufferLoad) and load.dtype == "float32"


# -- kernels for sizes that are known


def kernel() -> PrimFunc:
    n, k, i = Var("n"), Var("k"), Var("i")
    a, b = Buffer("a", (n, 3)), Buffer("b", (n,))
    return PrimFunc("f", (a, b, k), For(i, n, store(b, i, a[i, 1] * cast("float32", k))))


def test_a_kernel_for_shapes() -> None:
    found = specialize(kernel(), [(5, 3), (5,)], [7])
    assert [p.shape for p in found.params] == [(5, 3), (5,)] and found.body.extent.value == 5
    assert not [n for n in tir.visitor.walk(found.body) if isinstance(n, Var) and n.name in ("n", "k")]


@pytest.mark.parametrize("shapes, scalars, message", [
    ([(5, 3)], [7], "kernel f takes 2 buffers and 1 scalars, it is called with 1 buffers and 1 scalars"),
    ([(5, 3), (5,)], [], "it is called with 2 buffers and 0 scalars"),
    ([(5, 4), (5,)], [7], r"a has shape \(n, 3\), it is called with \(5, 4\)"),
    ([(5, 3), (6,)], [7], r"b has shape \(n\), it is called with \(6,\)"),
    ([(5, 3), (5, 1)], [7], r"b has shape \(n\), it is called with \(5, 1\)"),
    ([(5,), (5,)], [7], r"a has shape \(n, 3\), it is called with \(5,\)"),
])  # fmt: skip
def test_shapes_that_do_not_fit(shapes: Any, scalars: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        specialize(kernel(), shapes, scalars)
