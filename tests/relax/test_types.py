"""Matching of types, and what replaces the sizes in them."""

from __future__ import annotations

from typing import Any

import pytest

from pullback import tir
from pullback.ir import DTypeError, InternalError, Op, ShapeError
from pullback.ir.module import GlobalVar
from pullback.relax import (
    Call,
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from pullback.relax.matching import bind_sizes, match_info
from pullback.relax.op_calls import as_var, fields_of_tuple, kernel_name, kernel_operands, kernel_sizes, op_of
from pullback.relax.struct_info import PrimStructInfo, as_int, as_tensor, as_tuple, same_info, symbolic_vars
from pullback.script import relax as R

N, M = tir.Var("n"), tir.Var("m")


def info(*shape: Any, dtype: str = "float32") -> TensorStructInfo:
    return TensorStructInfo(shape, dtype)


UNKNOWN, MATRIX = TensorStructInfo(), TensorStructInfo(ndim=2)
PAIR = TupleStructInfo((info(2), info(3)))


@pytest.mark.parametrize("expected, given, fits", [
    (info(2, 3), info(2, 3), True),
    (info(2, 3), info(3, 2), False),
    (info(2, 3), info(2, 3, 1), False),
    (info(2), info(2, dtype="float64"), False),
    (MATRIX, info(2, 3), True),
    (MATRIX, info(N, 3), True),
    (MATRIX, info(2), False),
    (MATRIX, info(2, 3, dtype="int64"), False),
    (MATRIX, TensorStructInfo(ndim=3), False),
    (UNKNOWN, info(2, 3, 4), True),
    (UNKNOWN, MATRIX, True),
    (MATRIX, UNKNOWN, False),
    (info(2, 3), UNKNOWN, False),
    (info(2, 3), MATRIX, True),
    (info(2, 3), TensorStructInfo(ndim=1), False),
    (ObjectStructInfo(), PAIR, True),
    (PAIR, TupleStructInfo((info(2), info(3))), True),
    (PAIR, TupleStructInfo((info(2), info(2))), False),
    (PAIR, TupleStructInfo((info(2),)), False),
    (PAIR, info(2), False),
    (info(2), PAIR, False),
    (ShapeStructInfo((2,)), ShapeStructInfo((2,)), True),
    (ShapeStructInfo((2,)), ShapeStructInfo((3,)), False),
    (PrimStructInfo("int64"), PrimStructInfo("int32"), False),
])  # fmt: skip
def test_what_fits(expected, given, fits):
    assert match_info(expected, given, {}) is fits


@pytest.mark.parametrize("expected, given, sizes", [
    (info(N, M), info(4, 5), {N: 4, M: 5}),
    (info(N, N), info(4, 5), None),
    (info(N, N + 1), info(4, 5), {N: 4}),
    (info(N, N * 2), info(4, 9), None),
    (info(3, N), info(4, 5), None),
    (TupleStructInfo((info(N), info(N))), TupleStructInfo((info(4), info(5))), None),
    (TupleStructInfo((info(N), info(M))), TupleStructInfo((info(4), info(5))), {N: 4, M: 5}),
    (info(N), info(M + 1), {N: M + 1}),
])  # fmt: skip
def test_sizes_are_bound_once(expected, given, sizes):
    found: dict[Any, Any] = {}
    assert match_info(expected, given, found) is (sizes is not None)
    if sizes is not None:
        assert {v: str(s) for v, s in found.items()} == {v: str(s) for v, s in sizes.items()}


def test_sizes_that_are_known_before_count():
    assert match_info(info(N), info(4), {N: 4})
    assert not match_info(info(N), info(5), {N: 4})


def test_sizes_are_replaced_in_every_type():
    sizes = {N: 3}
    before = TupleStructInfo((info(N, M), ShapeStructInfo((N, 2)), FuncStructInfo((info(N),), info(N * 2))))
    after = TupleStructInfo((info(3, M), ShapeStructInfo((3, 2)), FuncStructInfo((info(3),), info(6))))
    assert bind_sizes(before, sizes) == after and bind_sizes(before, {}) is before
    assert bind_sizes(info(N, dtype="int8"), sizes).dtype == "int8"
    assert bind_sizes(MATRIX, sizes) == MATRIX
    assert set(symbolic_vars(before)) == {N, M} and set(symbolic_vars(after)) == {M}


@pytest.mark.parametrize("a, b", [
    (info(2), info(2, dtype="float16")),
    (info(2), info(3)),
    (info(2), info(2, 1)),
    (info(N), info(M)),
    (info(2, 3), MATRIX),
    (UNKNOWN, MATRIX),
    (PAIR, TupleStructInfo((info(2),))),
    (PAIR, TupleStructInfo((info(3), info(2)))),
    (ShapeStructInfo((2,)), ShapeStructInfo((2, 2))),
    (PrimStructInfo("int64"), PrimStructInfo("bool")),
    (FuncStructInfo((info(2),), info(2)), FuncStructInfo((info(2),), info(3))),
    (FuncStructInfo((info(2),), info(2)), FuncStructInfo((info(3),), info(2))),
    (FuncStructInfo((info(2),), info(2)), FuncStructInfo((), info(2))),
    (ObjectStructInfo(), UNKNOWN),
])  # fmt: skip
def test_types_that_differ(a, b):
    assert not same_info(a, b) and not same_info(b, a) and a != b
    assert same_info(a, a) and same_info(b, b)


def test_sizes_are_looked_at():
    with pytest.raises(ShapeError, match="ndim=2 does not fit the shape"):
        TensorStructInfo((2,), ndim=2)
    assert TensorStructInfo((2, 3), ndim=2) == info(2, 3)
    for wrong in (2.0, "n", None, [2]):
        with pytest.raises(ShapeError, match="a size must be an int or a symbolic int64 expression"):
            info(wrong)
    with pytest.raises(ShapeError, match=r"must be less than 2\*\*63"):
        info(2**63)
    with pytest.raises(ShapeError, match="has more bytes than"):
        info(2**61)
    assert info(2**61 - 1).sizes == (2**61 - 1,)
    assert info(2**62, dtype="int8").sizes == (2**62,)
    with pytest.raises(DTypeError, match="a symbolic size must be int64, not int32"):
        info(tir.Var("k", "int32"))


# -- what a pass knows, under its narrow type

X = Var("x", info(2, 3))
SUM = Call(Op.get("add"), (X, X))
CALLED = Call(Var("f", FuncStructInfo((info(2, 3),), info(2, 3))), (X,))
KERNEL = R.call_tir(GlobalVar("k"), Tuple((X,)), info(N), tir_vars=[N])


def test_what_is_known_of_calls_and_types() -> None:
    assert op_of(SUM) is Op.get("add") and as_var(X) is X and fields_of_tuple(Tuple((X, SUM))) == (X, SUM)
    assert kernel_name(KERNEL) == "k" and kernel_operands(KERNEL) == (X,) and kernel_sizes(KERNEL) == (N,)
    assert kernel_sizes(R.call_tir(GlobalVar("k"), Tuple((X,)), info(2))) == ()
    assert as_tensor(X.struct_info).static_shape == (2, 3) and as_tuple(PAIR) is PAIR and as_int(3) == 3
    assert tir.Buffer("b", (2, 3), "float16").nbytes == 12


@pytest.mark.parametrize("ask, of, message", [
    (op_of, CALLED, "the call of an op"),
    (as_var, SUM, "a variable"),
    (fields_of_tuple, X, "a tuple"),
    (kernel_name, SUM, "the name of a function"),
    (kernel_operands, SUM, "a tuple"),
    (kernel_sizes, Call(Op.get("where"), (Var("c", info(dtype="bool")), X, X)), "sizes"),
    (as_tensor, PAIR, "the type of a tensor"),
    (as_tuple, info(2), "the type of a tuple"),
    (as_int, N, "a number"),
    (lambda i: i.static_shape, info(N, 2), "are not numbers"),
    (lambda i: i.static_shape, UNKNOWN, "are not numbers"),
    (lambda b: b.nbytes, tir.Buffer("b", (N,)), "the sizes of b are not numbers"),
])  # fmt: skip
def test_what_is_not_as_a_pass_thinks(ask: Any, of: Expr, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        ask(of)
