"""FoldConstant: what is computed now, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.expr import Function, If, Let, Tuple, TupleGetItem, Var, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.transform import FoldConstant, FoldConstantExpr, FuseOps
from pullback.relay.ty import TensorType
from tests.relay.dataflow import becomes, evaluated, free, ops_in, ran, same_values, stays, typed

C = np.array([1, 2, 3], "float32")


def test_a_let_of_constants_is_its_value() -> None:
    x, t = free("x", 3), Var("t")
    value = op("multiply", op("add", const(C), const(C)), const(2.0))
    before = Function((x,), Let(t, value, op("add", t, x)))
    becomes(FoldConstant(), before, Function((x,), op("add", const(4 * C), x)))


def test_other_lets_stay() -> None:
    x, t = free("x", 3), Var("t", TensorType((3,)))
    stays(FoldConstant(), Function((x,), Let(t, op("exp", x), op("add", t, x))))


def test_tuples() -> None:
    x = free("x", 3)
    becomes(FoldConstant(), Function((x,), TupleGetItem(Tuple((const(1.0), x)), 1)), Function((x,), x))
    pieces = op("split", const(np.arange(6)), indices_or_sections=2)
    becomes(FoldConstant(), Function((), pieces[1]), Function((), const(np.arange(3, 6))))
    joined = op("concatenate", [const(C), const(-C)], axis=0)
    becomes(FoldConstant(), Function((x,), joined), Function((x,), const(np.concatenate([C, -C]))))


@pytest.mark.parametrize("cond", [True, False])
def test_a_branch_on_a_constant(cond: bool) -> None:
    x = free("x", 3)
    before = Function((x,), If(op("logical_not", const(not cond)), op("exp", x), op("log", x)))
    becomes(FoldConstant(), before, Function((x,), op("exp" if cond else "log", x)))


@pytest.mark.parametrize(("dtype", "expected"), [(None, "int32"), ("int64", "int64")])
def test_shapes_that_are_known(dtype: str | None, expected: str) -> None:
    x = free("x", 3, 7)
    options = {} if dtype is None else {"dtype": dtype}
    shape, size = op("shape_of", x, **options), op("ndarray_size", x, **options)
    after = becomes(
        FoldConstant(),
        Function((x,), Tuple((shape, size))),
        Function((x,), Tuple((const(np.array([3, 7], expected)), const(np.array(21, expected))))),
    )
    assert after.body.fields[0].data.dtype == expected


def test_shapes_that_are_not_known() -> None:
    from pullback.relay.ty import Any as AnySize

    x = var("x", shape=(3, AnySize()))
    stays(FoldConstant(), Function((x,), op("shape_of", x)))


@pytest.mark.parametrize(
    "value",
    [
        lambda x: op("ones", (2, 3), "float32"),
        lambda x: op("add", x, const(C)),
        lambda x: op("nn.dropout", const(C)),
        lambda x: op("broadcast_to", const(1.0), shape=(3000, 3000)),
    ],
)
def test_what_stays(value: Any) -> None:
    x = free("x", 3)
    stays(FoldConstant(), Function((x,), value(x)))


def test_batch_norm_of_constants() -> None:
    data = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype("float32")
    norm = op("nn.batch_norm", const(data), *[const(np.abs(C) + i) for i in range(4)])[0]
    function = Function((), op("nn.relu", norm))
    after = ran(FoldConstant(), function)
    assert ops_in(after) == []
    same_values(function, after)


def test_functions_that_were_fused_stay_whole() -> None:
    x = free("x", 3)
    fused = ran(FuseOps(), Function((x,), op("add", x, op("exp", const(2.0)))), config={})
    assert ops_in(ran(FoldConstant(), fused)) == ops_in(fused)


def test_a_value_that_is_used_twice_is_one() -> None:
    x = free("x", 3)
    shared = op("exp", const(C))
    after = ran(FoldConstant(), Function((x,), Tuple((shared, op("add", shared, x)))))
    assert after.body.fields[0] is after.body.fields[1].args[0]
    np.testing.assert_allclose(evaluated(after, [C])[1], np.exp(C) + C, rtol=1e-6)


def test_expressions() -> None:
    x = free("x", 3)
    folded = FoldConstantExpr(op("add", x, op("add", const(1.0), const(2.0))))
    assert folded.args[1].data.numpy() == 3 and folded.checked_type == TensorType((3,))
    assert ops_in(FoldConstantExpr(typed(Function((x,), op("negative", const(C)))))) == []
