"""Passes that rewrite single calls: canonical forms, fast math, Legalize, DynamicToStatic, SplitArgs, PlanDevices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import UserError
from pullback.relay.analysis import free_vars
from pullback.relay.expr import Call, Constant, Function, Let, Tuple, Var, call_op, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.op import get
from pullback.relay.transform import (
    CanonicalizeCast,
    CanonicalizeOps,
    DynamicToStatic,
    FastMath,
    FuseOps,
    Legalize,
    PlanDevices,
    SplitArgs,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from pullback.relay.visitor import post_order
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays


@pytest.mark.parametrize(("axis", "behind"), [(1, 2), (-1, 0), (0, 3), (-2, 1)])
def test_bias_add(axis: int, behind: int) -> None:
    x = free("x", 2, 3, 4, 5)
    b = free("b", (2, 3, 4, 5)[axis])
    wide = op("expand_dims", b, axis=1, num_newaxis=behind) if behind else b
    before = Function((x, b), op("nn.bias_add", op("exp", x), b, axis=axis))
    same_values(before, becomes(CanonicalizeOps(), before, Function((x, b), op("add", op("exp", x), wide))))


def test_each_user_has_its_cast() -> None:
    x = free("x", 3, 4, dtype="int8")
    wide = op("cast", x, "int32")
    before = Function((x,), Tuple((op("abs", wide), op("negative", wide), op("add", wide, wide))))
    after = ran(CanonicalizeCast(), before)
    assert ops_in(after).count("cast") == 4
    same_values(before, after)
    narrow = op("cast", op("cast", x, "int32"), "int8")
    stays(CanonicalizeCast(), Tuple((op("abs", narrow), op("negative", narrow))))
    stays(CanonicalizeCast(), Tuple((op("sum", wide), op("max", wide))))


def test_fast_math() -> None:
    x = free("x", 3, 4)
    before = Function((x,), op("nn.softmax", op("erf", op("tanh", op("exp", x))), axis=0))
    after = ran(FastMath(), before)
    assert ops_in(after) == ["fast_exp", "fast_tanh", "fast_erf", "nn.fast_softmax"] and after.body.attrs.axis == 0
    same_values(before, after, rtol=1e-3)


@pytest.fixture
def legalized() -> Iterator[Any]:
    """Sets a rule of an operator for one test."""
    changed = []

    def put(name: str, rule: Any, attribute: str = "FTVMLegalize") -> None:
        get(name).set_attr(attribute, rule)
        changed.append((name, attribute))

    yield put
    for name, attribute in changed:
        get(name).reset_attr(attribute)


def test_legalize(legalized: Any) -> None:
    seen: list[Any] = []

    def rule(attrs: Any, inputs: list[Any], types: list[Any]) -> Any:
        seen.append((dict(attrs), types))
        return call_op("maximum", inputs[0], const(0.0))

    legalized("nn.relu", rule)
    x = free("x", 3, 4)
    before = Function((x,), op("exp", op("nn.relu", op("nn.relu", x))))
    inner = op("maximum", op("maximum", x, const(0.0)), const(0.0))
    becomes(Legalize(), before, Function((x,), op("exp", inner)))
    assert seen == [({}, [TensorType((3, 4))] * 2)] * 2


def test_legalize_by_another_name(legalized: Any) -> None:
    legalized("nn.relu", lambda attrs, inputs, types: call_op("exp", inputs[0]), "FMine")
    x = free("x", 3)
    stays(Legalize(), op("nn.relu", x))
    assert ops_in(ran(Legalize("FMine"), op("nn.relu", x))) == ["exp"]


def test_legalize_that_does_not_change(legalized: Any) -> None:
    legalized("nn.relu", lambda attrs, inputs, types: None)
    stays(Legalize(), op("nn.relu", free("x", 3)))
    legalized("nn.relu", lambda attrs, inputs, types: "no")
    with pytest.raises(UserError, match=r"the FTVMLegalize of nn\.relu returned str"):
        ran(Legalize(), op("nn.relu", free("x", 3)))


X, Y, B, S = free("x", 4, 6), free("y", 3, 8), free("b", 1, 8), free("s", 1, 3)

DYNAMIC: dict[str, Any] = {
    "reshape": lambda: (op("dyn.reshape", X, op("shape_of", Y)), op("reshape", X, newshape=(3, 8))),
    "reshape of two shapes": lambda: (
        op("dyn.reshape", op("dyn.reshape", X, op("shape_of", Y)), const([2, 12], "int64")),
        op("reshape", op("reshape", X, newshape=(3, 8)), newshape=(2, 12)),
    ),
    "tile": lambda: (op("dyn.tile", X, const([2, 1], "int64")), op("tile", X, reps=(2, 1))),
    "broadcast_to": lambda: (
        op("dyn.broadcast_to", B, op("shape_of", Y)),
        op("broadcast_to", B, shape=(3, 8)),
    ),
    "expand_dims": lambda: (op("dyn.expand_dims", X, const(1, "int64")), op("expand_dims", X, axis=1)),
    "squeeze": lambda: (
        op("dyn.squeeze", S, const([0], "int64")),
        op("squeeze", S, axis=[0]),
    ),
    "strided_slice": lambda: (
        op("dyn.strided_slice", X, const([1, 0], "int64"), const([3, 4], "int64"), const([1, 2], "int64")),
        op("strided_slice", X, begin=[1, 0], end=[3, 4], strides=[1, 2]),
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_to_static(name: str) -> None:
    before, expected = DYNAMIC[name]()
    used = [v for v in (X, Y, B, S) if v in free_vars(before)]
    before, expected = Function(tuple(used), before), Function(tuple(used), expected)
    same_values(before, becomes(DynamicToStatic(), before, expected))


@pytest.mark.parametrize(
    ("made", "number"),
    [
        (lambda: op("dyn.zeros", op("shape_of", X), dtype="float32"), 0),
        (lambda: op("dyn.ones", const([4, 6], "int64"), dtype="float32"), 1),
        (lambda: op("dyn.full", const(2.5), op("shape_of", X), dtype="float32"), 2.5),
    ],
)
def test_dynamic_tensors_of_constants_are_constants(made: Any, number: float) -> None:
    body = ran(DynamicToStatic(), Function((X,), made())).body
    assert isinstance(body, Constant) and body.checked_type == TensorType((4, 6))
    np.testing.assert_array_equal(body.data.numpy(), np.full((4, 6), number, "float32"))


def test_dynamic_shapes_in_lets() -> None:
    t = Var("t")
    body = Let(t, op("dyn.reshape", X, op("shape_of", Y)), op("dyn.tile", t, op("shape_of", t)))
    after = ran(DynamicToStatic(), Function((X, Y), body))
    assert ops_in(after) == ["reshape", "tile"] and after.ret_type == TensorType((9, 64))


def test_dynamic_shapes_that_are_computed_of_constants() -> None:
    x = free("x", 6, 8)
    shape = op("multiply", op("shape_of", Y), const(np.array([2, 1], "int32")))
    before = Function((x, Y), op("dyn.reshape", x, shape))
    becomes(DynamicToStatic(), before, Function((x, Y), op("reshape", x, newshape=(6, 8))))


def test_dynamic_shapes_that_are_not_known_stay() -> None:
    s, d = free("s", 2, dtype="int64"), var("d", shape=(AnySize(), 3))
    stays(DynamicToStatic(), Function((X, s), op("dyn.reshape", X, s)))
    stays(DynamicToStatic(), Function((X, d), op("dyn.reshape", X, op("shape_of", d))))


@pytest.mark.parametrize("most", [1, 2, 3, 4, 9, 10, 0])
def test_split_args(most: int) -> None:
    parts = [free(f"x{i}", 2, 3) for i in range(9)]
    before = Function(tuple(parts), op("concatenate", parts, axis=1))
    after = ran(SplitArgs(most), before)
    same_values(before, after)
    joins = [n for n in post_order(after) if isinstance(n, Call) and getattr(n.op, "name", "") == "concatenate"]
    if most < 2 or most >= 9:
        assert len(joins) == 1
    else:
        assert len(joins) > 1 and max(len(j.args[0].fields) for j in joins) <= most
        assert all(j.attrs.axis == 1 for j in joins)
        fused = ran(FuseOps(), after)
        assert "annotation.stop_fusion" not in ops_in(fused)
        kernels = [n for n in post_order(fused) if isinstance(n, Function) and n.attrs.get("Primitive")]
        assert len(kernels) == len(joins)


def test_one_device() -> None:
    x = free("x", 3)
    before = Function((x,), op("exp", op("on_device", op("tanh", x))))
    becomes(PlanDevices(), before, Function((x,), op("exp", op("tanh", x))))
