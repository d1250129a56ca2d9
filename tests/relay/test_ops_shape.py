"""relay's operators of shapes, and those that make tensors, against NumPy; their types where sizes are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Function, Tuple, as_expr, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from tests.relay.op_cases import Case, check_unknown_sizes, check_value, every, first, integers, named, normal

X = normal(2, 3, 4)
UNKNOWN = AnySize()


def _reshape(newshape: Any, shape: tuple[int, ...], data: np.ndarray = X, **attrs: Any) -> Case:
    return Case("reshape", [data], lambda x: x.reshape(shape), attrs={"newshape": newshape} | attrs)


def _together(name: str, join: Any, axis: int) -> Case:
    return Case(
        name,
        [normal(2, 3), normal(2, 3)],
        lambda a, b: join([a, b], axis),
        lambda a, b, axis: named(name)([a, b], axis=axis),
        attrs={"axis": axis},
    )


CASES = [
    _reshape((4, 0, 2), (4, 3, 2)),
    _reshape((2, 0, 0), (2, 3, 4)),
    _reshape((6, 1, -1), (6, 1, 4)),
    _reshape((3, -1, 8), (3, 1, 8)),
    _reshape(-1, (24,)),
    _reshape((-2,), (2, 3, 4)),
    _reshape((2, -2), (2, 3, 4)),
    _reshape((-2, 1, 1), (2, 3, 4, 1, 1)),
    _reshape((-3, 4), (6, 4)),
    _reshape((0, -3), (2, 12)),
    _reshape((-3, -2), (6, 4)),
    _reshape((-3, -3), (6, 20), normal(2, 3, 4, 5)),
    _reshape((-4, 1, 2, -2), (1, 2, 3, 4)),
    _reshape((2, -4, -1, 3, -2), (2, 1, 3, 4)),
    _reshape((), (), normal(1, 1)),
    _reshape((0, 3), (0, 3), normal(0, 3), allowzero=True),
    Case("contrib_reverse_reshape", [X], lambda x: x.reshape(6, 4), attrs={"newshape": (-1, 0)}),
    Case(
        "contrib_reverse_reshape",
        [normal(2, 3, 4, 5)],
        lambda x: x.reshape(24, 5),
        op.reverse_reshape,
        attrs={"newshape": (-1, 0)},
    ),
    Case("reshape_like", [X, normal(6, 4)], lambda x, y: x.reshape(6, 4)),
    Case(
        "reshape_like",
        [X, normal(5, 6, 9)],
        lambda x, y: x.reshape(6, 4),
        attrs={"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 1, "rhs_end": 2},
    ),
    Case("cast", [X], lambda x: x.astype("int32"), attrs={"dtype": "int32"}),
    Case("cast", [integers(0, 3, 4)], lambda x: x.astype(bool), attrs={"dtype": "bool"}),
    Case("cast_like", [X, normal(3, dtype="float64")], lambda x, y: x.astype("float64")),
    Case("expand_dims", [X], lambda x: x.reshape(2, 1, 1, 3, 4), attrs={"axis": 1, "num_newaxis": 2}),
    Case("expand_dims", [X], lambda x: x[..., None], attrs={"axis": -1}),
    Case("squeeze", [normal(1, 3, 1)], lambda x: x.reshape(3), dynamic=False),
    Case("squeeze", [normal(1, 3, 1)], lambda x: x.reshape(1, 3), attrs={"axis": [-1]}),
    Case("transpose", [X], lambda x: x.transpose()),
    Case("transpose", [X], lambda x: x.transpose(0, 2, 1), attrs={"axes": (0, -1, 1)}),
    Case("reverse", [X], lambda x: x[:, ::-1], attrs={"axis": 1}),
    Case(
        "reverse_sequence",
        [normal(4, 3), np.array([1, 3, 4], "int32")],
        lambda x, n: np.stack([np.r_[x[: n[b], b][::-1], x[n[b] :, b]] for b in range(3)], 1),
        attrs={"seq_axis": 0, "batch_axis": 1},
    ),
    _together("concatenate", np.concatenate, 0),
    _together("concatenate", np.concatenate, -1),
    _together("stack", np.stack, 0),
    _together("stack", np.stack, -1),
    Case("split", [X], lambda x: np.split(x, 2, 2), attrs={"indices_or_sections": 2, "axis": 2}),
    Case("split", [X], lambda x: np.split(x, [1], 2), attrs={"indices_or_sections": (1,), "axis": -1}),
    Case(
        "meshgrid",
        [normal(3), normal(2)],
        lambda a, b: np.meshgrid(a, b, indexing="ij"),
        lambda a, b: op.meshgrid([a, b]),
    ),
    Case(
        "meshgrid",
        [normal(3), normal(2), normal()],
        lambda a, b, c: np.meshgrid(a, b, c, indexing="xy"),
        lambda a, b, c: op.meshgrid(Tuple([a, b, c]), indexing="xy"),
    ),
    Case("repeat", [X], lambda x: x.repeat(2, 1), attrs={"repeats": 2, "axis": 1}),
    Case("repeat", [X], lambda x: x.repeat(3), attrs={"repeats": 3}),
    Case("tile", [X], lambda x: np.tile(x, (2, 1)), attrs={"reps": (2, 1)}),
    Case("tile", [X], lambda x: np.tile(x, (2, 1, 1, 3)), attrs={"reps": (2, 1, 1, 3)}),
    Case("broadcast_to", [normal(3, 1)], lambda x: np.broadcast_to(x, (2, 3, 4)), attrs={"shape": (2, 3, 4)}),
    Case("broadcast_to_like", [normal(3, 1), X], lambda x, y: np.broadcast_to(x, y.shape)),
    Case("collapse_sum_like", [X, normal(3, 1)], lambda x, y: x.sum(0).sum(1, keepdims=True)),
    Case("collapse_sum_like", [X, X], lambda x, y: x),
    Case("collapse_sum_to", [X], lambda x: x.sum((0, 1)), attrs={"shape": (4,)}),
    Case("shape_of", [X], lambda x: np.array([2, 3, 4], "int32")),
    Case("shape_of", [X], lambda x: np.array([2, 3, 4], "int64"), attrs={"dtype": "int64"}),
    Case("ndarray_size", [X], lambda x: np.array(24, "int32")),
    Case("ndarray_size", [normal()], lambda x: np.array(1, "int64"), attrs={"dtype": "int64"}),
    Case(
        "layout_transform",
        [normal(2, 4, 3, 5)],
        lambda x: x.transpose(0, 2, 3, 1),
        attrs={"src_layout": "NCHW", "dst_layout": "NHWC"},
    ),
    Case(
        "layout_transform",
        [normal(2, 4, 3, 5)],
        lambda x: x.reshape(2, 2, 2, 3, 5).transpose(0, 1, 3, 4, 2),
        attrs={"src_layout": "NCHW", "dst_layout": "NCHW2c"},
    ),
    Case(
        "layout_transform",
        [normal(2, 2, 3, 5, 2)],
        lambda x: x.transpose(0, 2, 3, 1, 4).reshape(2, 3, 5, 4),
        attrs={"src_layout": "NCHW2c", "dst_layout": "NHWC"},
    ),
    Case("zeros", [], lambda: np.zeros((2, 3), "int32"), lambda: op.zeros((2, 3), "int32")),
    Case("ones", [], lambda: np.ones((2, 3), "float32"), lambda: op.ones([2, 3], "float32")),
    Case("ones", [], lambda: np.ones((), "float32"), lambda: op.ones((), "float32")),
    Case("zeros_like", [X], np.zeros_like),
    Case("ones_like", [integers(0, 9, 3)], np.ones_like),
    Case("full", [normal()], lambda x: np.full((2, 3), x), attrs={"shape": (2, 3)}),
    Case(
        "full",
        [normal()],
        lambda x: np.full((2,), x, "float64"),
        attrs={"shape": (2,), "dtype": "float64"},
        tolerance=1e-6,
    ),
    Case("full_like", [X, normal()], lambda x, v: np.full_like(x, v)),
    Case("arange", [], lambda: np.arange(5, dtype="float32"), lambda: op.arange(const(5.0))),
    Case("arange", [], lambda: np.arange(1, 9, 3, dtype="int32"), lambda: op.arange(1, 9, 3, dtype="int32")),
    Case("arange", [], lambda: np.arange(4, 0, -1.5, dtype="float32"), lambda: op.arange(4.0, 0.0, -1.5)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


@pytest.mark.parametrize("loose", [every, first])
@pytest.mark.parametrize("case", [c for c in CASES if c.dynamic and c.arrays], ids=str)
def test_unknown_sizes(case: Case, loose: Any) -> None:
    check_unknown_sizes(case, loose)


def _type(*shapes: Any) -> list[Any]:
    return [var(f"x{i}", TensorType(shape)) for i, shape in enumerate(shapes)]


TYPES = [  # the call, the shapes of its arguments, the shape of the result; ? is not known
    (lambda x: op.reshape(x, (0, -1)), ["?", 3, 4], ["?", 12]),
    (lambda x: op.reshape(x, (-1, 4)), ["?", 3, 4], ["?", 4]),
    (lambda x: op.reshape(x, (-3, 0)), ["?", 3, 4], ["?", 4]),
    (lambda x: op.reshape(x, (0, -3)), ["?", 3, 4], ["?", 12]),
    (lambda x: op.reshape(x, (-3, -1)), ["?", 4, 5], ["?", "?"]),
    (lambda x: op.reshape(x, (-4, 2, -1, -2)), ["?", 3], [2, "?", 3]),
    (lambda x: op.reverse_reshape(x, (-1, 0)), [2, 3, "?"], [6, "?"]),
    (lambda x: op.transpose(x, (1, 0)), ["?", 3], [3, "?"]),
    (lambda x: op.squeeze(x, [0]), ["?", 3], [3]),
    (lambda x: op.squeeze(x, [0]), [1, "?"], ["?"]),
    (lambda x: op.expand_dims(x, 0), ["?", 3], [1, "?", 3]),
    (lambda x: op.tile(x, (2, 1)), ["?", 3], ["?", 3]),
    (lambda x: op.repeat(x, 2, 1), ["?", 3], ["?", 6]),
    (lambda x: op.sum(x, 0), ["?", 3], [3]),
    (lambda x: op.sum(x, 0, exclude=True), ["?", 3], ["?"]),
    (lambda x: op.shape_of(x), ["?", 3], [2]),
    (lambda x: op.zeros_like(x), ["?", 3], ["?", 3]),
    (lambda x: op.broadcast_to(x, (4, 3)), ["?", 3], [4, 3]),
    (lambda x: op.split(x, 2, 1)[0], ["?", 4], ["?", 2]),
]
TWO_TYPES = [
    (lambda x, y: op.add(x, y), ["?", 3], [2, 1], [2, 3]),
    (lambda x, y: op.add(x, y), ["?", 3], [1], ["?", 3]),
    (lambda x, y: op.add(x, y), ["?"], ["?"], ["?"]),
    (lambda x, y: op.concatenate([x, y], 0), ["?", 3], [2, 3], ["?", 3]),
    (lambda x, y: op.concatenate([x, y], 1), ["?", 3], [2, 3], [2, 6]),
    (lambda x, y: op.stack([x, y], 0), ["?", 3], [2, "?"], [2, 2, 3]),
    (lambda x, y: op.collapse_sum_like(x, y), ["?", 3], [3], [3]),
    (lambda x, y: op.broadcast_to_like(x, y), [3], ["?", 3], ["?", 3]),
]


def _sizes(shape: list[Any]) -> tuple[Any, ...]:
    return tuple(UNKNOWN if s == "?" else s for s in shape)


@pytest.mark.parametrize(("call", "shape", "result"), TYPES)
def test_type(call: Any, shape: list[Any], result: list[Any]) -> None:
    (x,) = _type(_sizes(shape))
    assert run_infer_type(as_expr(call(x))).checked_type.shape == _sizes(result)


@pytest.mark.parametrize(("call", "shape", "other", "result"), TWO_TYPES)
def test_type_of_two(call: Any, shape: list[Any], other: list[Any], result: list[Any]) -> None:
    x, y = _type(_sizes(shape), _sizes(other))
    assert run_infer_type(as_expr(call(x, y))).checked_type.shape == _sizes(result)


WRONG = [
    (lambda x: op.reshape(x, (5, 5)), "relay.reshape(x, shape) gives"),
    (lambda x: op.reshape(x, (-1, -1)), "only one size of newshape"),
    (lambda x: op.reshape(x, (-5,)), "-5 in newshape"),
    (lambda x: op.reshape(x, (-4, 3, 2, -2)), "-4 cannot split 2 into 3 and 2"),
    (lambda x: op.reshape(x, (0, 0, 0, 0)), "asks for more sizes"),
    (lambda x: op.squeeze(x, [0]), "size 1"),
    (lambda x: op.split(x, 5, 1), "no 5 equal parts"),
    (lambda x: op.transpose(x, (0, 1, 3)), "no axis 3"),
    (lambda x: op.sum(x, 4), "no axis 4"),
    (lambda x: op.add(x, op.zeros((5,), "float32")), "5"),
    (lambda x: op.add(x, op.zeros((4,), "int32")), "relay.cast("),
    (lambda x: op.concatenate([x, op.zeros((2, 3), "float32")], 0), "concatenate: the shapes (2, 3, 4), (2, 3) differ"),
    (lambda x: op.broadcast_to(x, (2, 3, 5)), "5"),
    (lambda x: op.layout_transform(x, "NCHW", "NHWC"), "3 axes"),
    (lambda x: op.layout_transform(x, "NCW", "NCHW"), "same axes"),
    (lambda x: op.tile(x, (0,)), "positive"),
    (lambda x: op.expand_dims(x, 9), "9"),
    (lambda x: op.arange(const(0.0), const(1.0), const(0.0)), "step cannot be 0"),
    (lambda x: op.reshape(x), "newshape"),
    (lambda x: op.reshape(x, (2, -1), shape=3), "shape"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_errors(call: Any, words: str) -> None:
    x = var("x", shape=(2, 3, 4))
    with pytest.raises(PullbackError) as raised:
        run_infer_type(Function([x], as_expr(call(x))))
    assert words in str(raised.value)
