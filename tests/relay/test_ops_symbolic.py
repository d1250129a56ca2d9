"""Types of calls whose arguments have sizes that are variables: they stand in the result where they are copied, and in
sums and products of them."""

from __future__ import annotations

from typing import Any

import pytest

from pullback import te
from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Tuple, as_expr, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import IncompleteType, TensorType, TupleType

n, c, h = (te.size_var(name, "int32") for name in "nch")
w = te.var("w")


def _x(*shape: Any, dtype: str = "float32") -> Any:
    return var("x", TensorType(shape, dtype))


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda: op.exp(_x(n, 3, w)), (n, 3, w)),
        (lambda: op.add(_x(5, n, 5), _x(n, 1)), (5, n, 5)),
        (lambda: op.multiply(_x(n, c), _x(n, c)), (n, c)),
        (lambda: op.less(_x(n, 1), _x(c)), (n, c)),
        (lambda: op.sum(_x(n, c, h), 1), (n, h)),
        (lambda: op.sum(_x(n, c, h), (0, -1), keepdims=True), (1, c, 1)),
        (lambda: op.argmax(_x(n, c, h), 1, exclude=True), (c,)),
        (lambda: op.expand_dims(_x(n, c, 100), 2), (n, c, 1, 100)),
        (lambda: op.transpose(_x(n, c, 100), (1, 0, 2)), (c, n, 100)),
        (lambda: op.squeeze(_x(1, n, 1), [0]), (n, 1)),
        (lambda: op.concatenate((_x(n, c, 100), _x(n, c, 100)), -1), (n, c, 200)),
        (lambda: op.concatenate((_x(n, c), _x(h, c), _x(3, c)), 0), (n + h + 3, c)),
        (lambda: op.stack((_x(n, c), _x(n, c)), 1), (n, 2, c)),
        (lambda: op.reshape(_x(n, c, 100, 20), (0, -3, 0)), (n, c * 100, 20)),
        (lambda: op.reshape(_x(n, 4, 6), (0, -1)), (n, 24)),
        (lambda: op.reshape(_x(n, c, 6), (-1, 3)), (n * c * 2, 3)),
        (lambda: op.reverse_reshape(_x(n, c, 6), (-1, 0)), (n * c, 6)),
        (lambda: op.repeat(_x(n, c), 2, 0), (n * 2, c)),
        (lambda: op.tile(_x(n, c), (3, 1, 2)), (3, n, c * 2)),
        (lambda: op.take(_x(n, c, h), _x(h, 7, dtype="int32"), axis=1), (n, h, 7, h)),
        (lambda: op.strided_slice(_x(n, 8), [1], [5], axes=[1]), (n, 4)),
        (lambda: op.where(_x(n, 1, dtype="bool"), _x(n, c), _x(c)), (n, c)),
        (lambda: op.one_hot(_x(n, c, dtype="int32"), const(1.0), const(0.0), 3, -1, "float32"), (n, c, 3)),
        (lambda: op.full_like(_x(n, c), const(1.0)), (n, c)),
        (lambda: op.layout_transform(_x(n, c, h, w), "NCHW", "NHWC"), (n, h, w, c)),
        (lambda: op.nn.softmax(_x(n, c), axis=1), (n, c)),
        (lambda: op.nn.dropout(_x(n, c, h)), (n, c, h)),
        (lambda: op.nn.batch_flatten(_x(n, c, h, 2)), (n, c * h * 2)),
        (lambda: op.nn.pad(_x(n, 2, 3, h), ((1, 1), (2, 2), (3, 3), (0, 4))), (n + 2, 6, 9, h + 4)),
        (lambda: op.nn.dense(_x(n, c, h, 2), _x(w, 2)), (n, c, h, w)),
        (lambda: op.nn.batch_matmul(_x(n, c, h), _x(n, w, h)), (n, c, w)),
        (lambda: op.nn.lrn(_x(n, 4, h)), (n, 4, h)),
        (lambda: op.nn.max_pool2d(_x(n, 10, 224, 224), 2, 2), (n, 10, 112, 112)),
        (lambda: op.nn.avg_pool2d(_x(n, 10, h, 224), 3, 1, padding=1), (n, 10, h, 224)),
        (lambda: op.nn.global_avg_pool2d(_x(n, c, h, 224)), (n, c, 1, 1)),
        (lambda: op.nn.adaptive_avg_pool2d(_x(n, c, h, 224), (3, 4)), (n, c, 3, 4)),
        (lambda: op.nn.conv2d(_x(n, 10, h, 224), _x(2, 10, 3, 3), padding=1), (n, 2, h, 224)),
        (lambda: op.nn.conv2d_transpose(_x(n, 10, h, 12), _x(10, 15, 2, 2), strides=2), (n, 15, h * 2, 24)),
        (lambda: op.nn.upsampling(_x(n, c, 100, 200), 2, 2), (n, c, 200, 400)),
        (lambda: op.image.resize2d(_x(n, c, h, 200), (5, 6)), (n, c, 5, 6)),
        (lambda: op.collapse_sum_like(_x(n, c), _x(c)), (c,)),
        (lambda: op.add(_x(n, AnySize()), _x(n, c)), (n, c)),
    ],
)
def test_type(call: Any, shape: tuple[Any, ...]) -> None:
    found = run_infer_type(as_expr(call())).checked_type
    assert found == TensorType(shape, found.dtype)


def test_types_of_several_results() -> None:
    parts = run_infer_type(op.split(_x(3, n), 4, 1).astuple())
    assert parts.checked_type == TupleType([TensorType((3, n // 4))] * 4)
    parts = run_infer_type(op.split(_x(3, n), (2, 7), 1).astuple())
    assert parts.checked_type == TupleType([TensorType((3, 2)), TensorType((3, 5)), TensorType((3, n - 7))])
    parts = run_infer_type(op.split(_x(n, 6, c), 3, 1).astuple())
    assert parts.checked_type == TupleType([TensorType((n, 2, c))] * 3)
    vectors = [var(name, IncompleteType()) for name in "gbmv"]
    normal = run_infer_type(op.nn.batch_norm(_x(n, 4, h), *vectors).astuple())
    assert normal.checked_type == TupleType([TensorType((n, 4, h)), TensorType((4,)), TensorType((4,))])


def test_types_of_weights() -> None:
    weight = var("w", IncompleteType())
    typed = run_infer_type(op.nn.conv2d(_x(n, 10, h, w), weight, channels=2, kernel_size=3, padding=1))
    assert typed.checked_type == TensorType((n, 2, h, w))
    assert typed.args[1].checked_type == TensorType((2, 10, 3, 3))
    typed = run_infer_type(op.nn.dense(_x(n, c), weight, units=4))
    assert typed.args[1].checked_type == TensorType((4, c))


def test_equal_types() -> None:
    assert TensorType((n + n, 3)) == TensorType((n * 2, 3)) != TensorType((n * 3, 3))
    assert TensorType((n, 3)) != TensorType((c, 3)) and TensorType((n,)) != TensorType((3,))
    assert hash(TensorType((n + n,))) == hash(TensorType((n * 2,)))
    assert TensorType((AnySize(),)) == TensorType((AnySize(),)) != TensorType((n,))


@pytest.mark.parametrize(
    "call",
    [
        lambda: op.concatenate((_x(n, 2), _x(n, 3)), 0),
        lambda: op.add(_x(n, 2), _x(n, 3)),
        lambda: op.nn.dense(_x(n, 2), _x(4, 3)),
        lambda: op.reshape(_x(2, 3), (4, 2)),
        lambda: op.concatenate(Tuple([_x(n, c), _x(n)]), 0),
    ],
)
def test_errors(call: Any) -> None:
    with pytest.raises(PullbackError):
        run_infer_type(call())
