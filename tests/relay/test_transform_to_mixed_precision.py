"""ToMixedPrecision: which calls are computed in half precision, and how near the values are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, UserError
from pullback.relay.expr import Expr, Function, Let, Tuple, Var, const
from pullback.relay.expr import call_op as op
from pullback.relay.op import get
from pullback.relay.transform import ToMixedPrecision
from pullback.relay.transform.to_mixed_precision import ALWAYS
from pullback.relay.ty import TensorType
from tests.relay.dataflow import becomes, evaluated, flat, free, inputs, ops_in, ran, stays, typed

HALF = "float16"
KEEP = {"config": {"relay.ToMixedPrecision.keep_orig_output_dtype": True}}
X, W = free("x", 3, 4), free("w", 5, 4)


def cast(x: Expr, dtype: str = HALF) -> Expr:
    return op("cast", x, dtype)


def near(before: Any, after: Function, tolerance: float = 0.02) -> None:
    arrays = inputs(before)
    pairs = zip(flat(evaluated(typed(before), arrays)), flat(evaluated(after, arrays)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.asarray(a, "float64"), np.asarray(b, "float64"), rtol=tolerance, atol=tolerance)


def dense(x: Expr, w: Expr) -> Expr:
    return cast(op("nn.dense", x, w, out_dtype="float32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_dense_and_what_follows(dtype: str) -> None:
    before = Function((X, W), op("nn.relu", op("nn.dense", X, W)))
    y = op("nn.dense", cast(X, dtype), cast(W, dtype), out_dtype="float32")
    expected = Function((X, W), op("nn.relu", cast(y, dtype)))
    near(before, becomes(ToMixedPrecision(dtype), before, expected), 0.1)


def test_what_never_is() -> None:
    before = Function((X, W), op("nn.softmax", op("nn.dense", X, W)))
    # The result of the product is there in float32: it is not rounded on the way.
    expected = op("nn.softmax", op("nn.dense", cast(X), cast(W), out_dtype="float32"))
    near(before, becomes(ToMixedPrecision(), before, Function((X, W), expected)))


def test_a_follower_of_two_kinds() -> None:
    before = Function((X, W), op("add", op("nn.dense", X, W), op("exp", op("sum", X, axis=1, keepdims=True))))
    expected = op(
        "add",
        op("nn.dense", cast(X), cast(W), out_dtype="float32"),
        op("exp", op("sum", X, axis=1, keepdims=True)),
    )
    near(before, becomes(ToMixedPrecision(), before, Function((X, W), expected)))


def test_each_argument_is_cast_once() -> None:
    before = Function((X, W), op("add", op("nn.dense", X, W), op("nn.dense", X, op("nn.relu", W))))
    after = ran(ToMixedPrecision(), before)
    assert ops_in(after).count("cast") == 4
    near(before, after)


def test_a_chain_of_convolutions() -> None:
    x, w, v, b = free("x", 1, 3, 6, 6), free("w", 4, 3, 3, 3), free("v", 4, 4, 1, 1), free("b", 4)
    y = op("nn.relu", op("nn.bias_add", op("nn.conv2d", x, w, channels=4, kernel_size=(3, 3)), b))
    y = op("nn.conv2d", op("nn.max_pool2d", y, pool_size=(2, 2)), v, channels=4, kernel_size=(1, 1))
    before = Function((x, w, v, b), op("nn.batch_flatten", y))
    after = ran(ToMixedPrecision(), before)
    assert after.body.checked_type == TensorType((1, 36), HALF)
    near(before, after)
    kept = ran(ToMixedPrecision(), before, **KEEP)
    assert kept.body.checked_type == TensorType((1, 36), "float32")
    near(before, kept)


def test_results_of_several_types_are_kept() -> None:
    before = Function((X, W), Tuple((op("nn.dense", X, W), op("exp", X), op("argmax", op("nn.dense", X, W), axis=1))))
    after = ran(ToMixedPrecision(), before, **KEEP)
    assert [f.checked_type.dtype for f in after.body.fields] == ["float32", "float32", "int32"]
    near(before, after)
    plain = ran(ToMixedPrecision(), before)
    assert [f.checked_type.dtype for f in plain.body.fields] == [HALF, "float32", "int32"]


def test_tuples_are_cast_by_fields() -> None:
    joined = op("concatenate", [op("nn.dense", X, W), op("exp", op("nn.dense", X, W))], axis=0)
    parts = op("split", op("nn.dense", X, W), indices_or_sections=[2], axis=1)
    for body in (joined, op("exp", parts[0]), op("nn.relu", parts[1])):
        before = Function((X, W), body)
        near(before, ran(ToMixedPrecision(), before))


def test_lets_and_closures() -> None:
    t = Var("t")
    before = Function((X, W), Let(t, op("nn.dense", X, W), op("add", op("nn.relu", t), op("exp", t))))
    after = ran(ToMixedPrecision(), before)
    assert after.body.variable.checked_type.dtype == HALF
    near(before, after)


def test_integers_and_doubles_stay() -> None:
    i, d = free("i", 3, 4, dtype="int32"), free("d", 3, 4, dtype="float64")
    stays(ToMixedPrecision(), op("exp", op("multiply", d, d)))
    stays(ToMixedPrecision(), op("add", i, i))
    stays(ToMixedPrecision(), op("nn.dense", d, d))


@pytest.fixture
def rule() -> Iterator[Any]:
    changed = []

    def put(name: str, given: Any) -> None:
        get(name).set_attr("FTVMMixedPrecisionConversionType", given)
        changed.append(name)

    yield put
    for name in changed:
        get(name).reset_attr("FTVMMixedPrecisionConversionType")


def test_rules_of_users(rule: Any) -> None:
    rule("exp", lambda call, dtype: [ALWAYS, dtype, dtype])
    before = Function((X,), op("exp", X))
    near(before, becomes(ToMixedPrecision(), before, Function((X,), op("exp", cast(X)))))


def test_ops_of_no_kind() -> None:
    unknown = op("sinh", op("nn.dense", X, W))
    with pytest.warns(UserWarning, match="ToMixedPrecision knows nothing of sinh"):
        ran(ToMixedPrecision(HALF), unknown)
    with pytest.raises(UserError, match="knows nothing of sinh"):
        ran(ToMixedPrecision(HALF, 0), unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = ran(ToMixedPrecision(HALF, 2), unknown)
    assert after.body.checked_type.dtype == "float32"


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="mixed_precision_type cannot be 'int8'"):
        ToMixedPrecision("int8")
    with pytest.raises(ArgumentError, match="missing_op_mode must be 0, 1 or 2"):
        ToMixedPrecision(HALF, 3)


def test_constants() -> None:
    before = Function((X,), op("nn.dense", op("multiply", X, const(2.0)), const(np.ones((5, 4), "float32"))))
    after = ran(ToMixedPrecision(), before)
    assert ops_in(after).count("cast") == 4
    near(before, after)
