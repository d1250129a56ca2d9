"""SimplifyExpr: each rule, where it does not hold, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.expr import Expr, Function, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.transform import SimplifyExpr
from pullback.relay.transform.simplify_expr import loses_nothing
from pullback.relay.ty import Any as AnySize
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays

X, Y, I = free("x", 2, 3, 4), free("y", 2, 3, 4), free("i", 4, 8, dtype="int32")  # noqa: E741
X4, X5 = free("x", 1, 2, 3, 8), free("x", 1, 2, 2, 3, 4)
C = const(np.arange(1, 5, dtype="float32"))
Pair = tuple[Expr, Expr]


def zeros(dtype: str = "float32") -> Expr:
    return op("zeros", (2, 3, 4), dtype)


CASES: dict[str, Any] = {
    "zeros_like": lambda: (op("zeros_like", X), op("zeros", (2, 3, 4), "float32")),
    "ones_like": lambda: (op("ones_like", I), op("ones", (4, 8), "int32")),
    "full_like": lambda: (op("full_like", X, const(3.0)), op("full", const(3.0), shape=(2, 3, 4), dtype="float32")),
    "reshape_like": lambda: (
        op("reshape_like", X, op("zeros", (6, 4), "float32")),
        op("reshape", X, newshape=(6, 4)),
    ),
    "collapse_sum_like": lambda: (op("collapse_sum_like", X, C), op("collapse_sum_to", X, (4,))),
    "broadcast_to_like": lambda: (op("broadcast_to_like", C, X), op("broadcast_to", C, (2, 3, 4))),
    "cast_like": lambda: (op("cast_like", X, I), op("cast", X, "int32")),
    "cast_like, same": lambda: (op("exp", op("cast_like", X, Y)), op("exp", X)),
    "reshapes": lambda: (
        op("reshape", op("reshape", op("reshape", X, newshape=(6, 4)), newshape=(-1,)), newshape=(4, 6)),
        op("reshape", X, newshape=(4, 6)),
    ),
    "transposes": lambda: (
        op("transpose", op("transpose", X, axes=(1, 2, 0)), axes=(1, 0, -1)),
        op("transpose", X, axes=(2, 1, 0)),
    ),
    "transposes, back": lambda: (op("exp", op("transpose", op("transpose", X))), op("exp", X)),
    "transpose of nothing": lambda: (op("exp", op("transpose", X, axes=(0, 1, 2))), op("exp", X)),
    "layouts": lambda: (
        op("layout_transform", op("transpose", X, axes=(0, 2, 1)), "NWC", "CNW"),
        op("transpose", X, axes=(1, 0, 2)),
    ),
    "layouts, back": lambda: (
        op("exp", op("layout_transform", op("layout_transform", X, "NCW", "NWC"), "NWC", "NCW")),
        op("exp", X),
    ),
    "to blocks": lambda: (
        op("layout_transform", op("transpose", X4, axes=(0, 3, 1, 2)), "NCHW", "NCHW4c"),
        op("layout_transform", X4, "NHWC", "NCHW4c"),
    ),
    "from blocks": lambda: (
        op("transpose", op("layout_transform", X5, "NCHW4c", "NCHW"), axes=(0, 2, 3, 1)),
        op("layout_transform", X5, "NCHW4c", "NHWC"),
    ),
    "blocks of blocks": lambda: (
        op("layout_transform", op("layout_transform", X5, "NCHW4c", "NCHW"), "NCHW", "NCHW2c"),
        op("layout_transform", X5, "NCHW4c", "NCHW2c"),
    ),
    "blocks and back": lambda: (
        op("exp", op("layout_transform", op("layout_transform", X5, "NCHW4c", "NCHW2c"), "NCHW2c", "NCHW4c")),
        op("exp", X5),
    ),
    "through a plain layout to blocks": lambda: (
        op("layout_transform", op("layout_transform", X4, "NHWC", "NCHW"), "NCHW", "NCHW4c"),
        op("layout_transform", X4, "NHWC", "NCHW4c"),
    ),
    "reshape_like of parts": lambda: (
        op("reshape_like", X, free("y", 6, 2, 2), lhs_begin=2, rhs_begin=1),
        op("reshape", X, newshape=(2, 3, 2, 2)),
    ),
    "two sums": lambda: (
        op("add", op("zeros_like", X), op("collapse_sum_like", op("ones_like", op("add", X, C)), op("zeros_like", X))),
        op("collapse_sum_to", op("ones", (2, 3, 4), "float32"), (2, 3, 4)),
    ),
    "same cast": lambda: (op("exp", op("cast", X, "float32")), op("exp", X)),
    "casts": lambda: (op("cast", op("cast", I, "int64"), "float32"), op("cast", I, "float32")),
    "casts, back": lambda: (op("abs", op("cast", op("cast", I, "int64"), "int32")), op("abs", I)),
    "casts of a clip": lambda: (
        op("cast", op("cast", op("clip", I, 0.0, 255.0), "uint8"), "int32"),
        op("clip", I, 0.0, 255.0),
    ),
    "clips": lambda: (op("clip", op("clip", X, -1.0, 1.0), 0.0, 2.0), op("clip", X, 0.0, 1.0)),
    "clips apart": lambda: (op("clip", op("clip", X, -1.0, 0.0), 1.0, 2.0), op("clip", X, 1.0, 1.0)),
    "clip of a type": lambda: (
        op("clip", op("cast", I, "uint8"), 0.0, 255.0),
        op("cast", I, "uint8"),
    ),
    "plus zeros": lambda: (op("exp", op("add", X, zeros())), op("exp", X)),
    "zeros plus": lambda: (op("exp", op("add", op("zeros_like", X), X)), op("exp", X)),
    "minus zero": lambda: (op("exp", op("subtract", X, const(0.0))), op("exp", X)),
    "times one": lambda: (op("exp", op("multiply", const(1.0), X)), op("exp", X)),
    "divided by ones": lambda: (op("exp", op("divide", X, op("ones_like", Y))), op("exp", X)),
    "full beside": lambda: (
        op("power", op("full", const(2.0), shape=(2, 3, 4), dtype="float32"), X),
        op("power", const(2.0), X),
    ),
    "ones beside": lambda: (op("add", X, op("ones", (3, 4), "float32")), op("add", X, const(1.0))),
    "twice": lambda: (op("add", X, X), op("multiply", X, const(2.0))),
    "one by a root": lambda: (
        op("divide", const(2.5), op("sqrt", op("abs", X))),
        op("multiply", const(2.5), op("rsqrt", op("abs", X))),
    ),
    "sum times constant": lambda: (
        op("multiply", op("add", X, C), const(3.0)),
        op("add", op("multiply", X, const(3.0)), op("multiply", C, const(3.0))),
    ),
    "sum plus constant": lambda: (
        op("add", const(3.0), op("add", X, const(2.0))),
        op("add", X, op("add", const(2.0), const(3.0))),
    ),
    "product times constant": lambda: (
        op("multiply", op("multiply", C, X), const(3.0)),
        op("multiply", X, op("multiply", C, const(3.0))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str) -> None:
    before, expected = CASES[name]()
    used = _variables(before)
    function = Function(tuple(used), before)
    same_values(function, becomes(SimplifyExpr(), function, Function(tuple(used), expected)))


def _variables(expr: Expr) -> list[Any]:
    from pullback.relay.analysis import free_vars

    return list(free_vars(expr))


@pytest.mark.parametrize(
    "expr",
    [
        lambda: op("add", C, free("z", 2, 4)),
        lambda: op("subtract", const(0.0), X),
        lambda: op("divide", const(1.0), X),
        lambda: op("cast", op("cast", X, "int32"), "float32"),
        lambda: op("cast", op("cast", I, "int8"), "int32"),
        lambda: op("cast", op("cast", op("clip", I, -1.0, 255.0), "uint8"), "int32"),
        lambda: op("clip", X, 0.0, 255.0),
        lambda: op("zeros_like", var("d", shape=(AnySize(), 3))),
        lambda: op("add", X, op("multiply", X, Y)),
        lambda: op("multiply", op("subtract", X, C), C),
        lambda: op("layout_transform", free("b", 1, 8, 2, 2), "NCHW", "NCHW4c"),
        lambda: op("layout_transform", op("layout_transform", X5, "NCHW4c", "NCHW"), "NHWC", "NHWC3c"),
    ],
)
def test_what_stays(expr: Any) -> None:
    stays(SimplifyExpr(), expr())


def test_zeros_that_make_a_tensor_larger_stay() -> None:
    before = op("add", C, op("zeros", (2, 4), "float32"))
    after = ran(SimplifyExpr(), before)
    assert ops_in(after) == ["zeros", "add"] and after.body.checked_type.shape == (2, 4)


def test_a_chain_of_reshapes_behind_a_convolution() -> None:
    x, w = free("x", 1, 16, 16, 16), free("w", 32, 16, 3, 3)
    y = op("nn.conv2d", x, w, padding=(1, 1))
    before = op("reshape", op("reshape", y, newshape=(1, 16, -1)), newshape=(4, 8, -1, 16))
    before = Function((x, w), op("contrib_reverse_reshape", before, newshape=(32, 0, -1)))
    after = becomes(SimplifyExpr(), before, Function((x, w), op("reshape", y, newshape=(32, 16, 16))))
    assert after.body.checked_type.shape == (32, 16, 16)


def test_long_chains_in_one_go() -> None:
    x: Expr = X
    for k in range(400):
        x = op("reshape", x, newshape=(6, 4) if k % 2 else (24,))
    assert ops_in(ran(SimplifyExpr(), x)) == ["reshape"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("int8", "int32", True), ("uint8", "int16", True), ("bool", "int8", True), ("float16", "float32", True),
        ("int16", "float32", True), ("int32", "int8", False), ("int8", "uint8", False), ("float32", "int64", False),
        ("int64", "float32", False), ("int32", "int32", True),
    ],
)  # fmt: skip
def test_casts_that_lose_nothing(source: str, target: str, expected: bool) -> None:
    assert loses_nothing(source, target) == expected
