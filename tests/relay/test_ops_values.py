"""Operators whose attributes are known only when the program runs: as the static ones on the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Call, Function, as_expr, const, var
from pullback.relay.op import get
from pullback.relay.op.meaning import resolve
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from tests.relay.op_cases import Case, check_unknown_sizes, check_value, integers, normal

X = normal(2, 3, 4)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


CASES = [
    Case("dyn.reshape", [X, _ints(0, -1)], lambda x, s: x.reshape(2, 12), op.reshape),
    Case(
        "dyn.reshape", [normal(0, 3), _ints(3, 0)], lambda x, s: x.reshape(3, 0), op.reshape, attrs={"allowzero": True}
    ),
    Case("dyn.broadcast_to", [normal(3, 1), _ints(2, 3, 4)], lambda x, s: np.broadcast_to(x, s), op.broadcast_to),
    Case("dyn.collapse_sum_to", [X, _ints(1, 4)], lambda x, s: x.sum((0, 1))[None], op.collapse_sum_to),
    Case("dyn.zeros", [_ints(2, 3)], lambda s: np.zeros(s, "int32"), lambda s: op.zeros(s, "int32")),
    Case("dyn.ones", [_ints(2, 3)], lambda s: np.ones(s, "float32"), lambda s: op.ones(s, "float32")),
    Case("dyn.full", [normal(), _ints(2, 3)], lambda v, s: np.full(s, v), op.full),
    Case(
        "dyn.full", [normal(), _ints(2)], lambda v, s: np.full(s, v).astype("int32"), op.full, attrs={"dtype": "int32"}
    ),
    Case("dyn.tile", [X, _ints(2, 1, 1, 3)], np.tile, op.tile),
    Case("dyn.expand_dims", [X, np.array(1)], lambda x, a: x[:, None, None], op.expand_dims, attrs={"num_newaxis": 2}),
    Case("dyn.squeeze", [normal(1, 3, 1), _ints(0)], lambda x, a: x[0], op.squeeze),
    Case(
        "dyn.one_hot",
        [integers(0, 3, 2), np.array(3)],
        lambda i, d: np.eye(3, dtype="float32")[i],
        lambda i, d: op.one_hot(i, const(1.0), const(0.0), d, -1, "float32"),
    ),
    Case(
        "dyn.topk",
        [X, np.array(2)],
        lambda x, k: (-np.sort(-x)[..., :2], np.argsort(-x)[..., :2].astype("int32")),
        op.topk,
    ),
    Case(
        "dyn.topk",
        [X, np.array(2)],
        lambda x, k: np.sort(x, 1)[:, :2],
        op.topk,
        attrs={"axis": 1, "ret_type": "values", "is_ascend": True},
    ),
    Case("dyn.strided_slice", [X, _ints(0, 1), _ints(1, -1)], lambda x, b, e: x[:1, 1:-1], op.strided_slice),
    Case(
        "dyn.strided_slice", [X, _ints(0, 2), _ints(2, 0), _ints(1, -1)], lambda x, *b: x[:, 2:0:-1], op.strided_slice
    ),
    Case(
        "dyn.strided_slice",
        [X, _ints(0, 1), _ints(1, -1)],
        lambda x, b, e: x[:1, 1:],
        op.strided_slice,
        attrs={"slice_mode": "size"},
    ),
    Case("dyn.strided_slice", [X, _ints(1)], lambda x, b: x[1:2], lambda x, b: op.strided_slice(x, b, [2])),
    Case(
        "dyn.sparse_to_dense",
        [np.array([[0, 1], [1, 0]]), _ints(2, 2), np.array([3, 4], "int32")],
        lambda i, s, v: np.array([[0, 3], [4, 0]], "int32"),
        op.sparse_to_dense,
    ),
    Case("dyn.nn.pad", [normal(2, 3), np.array([[1, 0], [0, 2]])], np.pad, op.nn.pad),
    Case(
        "dyn.nn.upsampling",
        [normal(1, 2, 3, 4), np.array(2.0)],
        lambda x, s: x.repeat(2, 2).repeat(3, 3),
        lambda x, s: op.nn.upsampling(x, s, 3.0),
    ),
    Case(
        "dyn.nn.upsampling3d",
        [normal(1, 2, 3, 4, 2), np.array(2.0)],
        lambda x, s: x.repeat(2, 2).repeat(2, 3).repeat(3, 4),
        lambda x, s: op.nn.upsampling3d(x, s, s, 3.0, coordinate_transformation_mode="asymmetric"),
    ),
    Case(
        "dyn.image.resize2d",
        [normal(1, 2, 3, 4), _ints(6, 4)],
        lambda x, s: x.repeat(2, 2),
        op.image.resize2d,
        attrs={"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"},
    ),
    Case("dyn.arange", [np.array(5.0, "float32")], lambda n: np.arange(5, dtype="float32"), op.arange),
    Case(
        "dyn.arange",
        [np.array(7), np.array(2)],
        lambda n, s: np.arange(1, 7, 2),
        lambda n, s: op.arange(const(1), n, s, "int64"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


def _data(i: int, axis: int) -> bool:
    return i == 0


@pytest.mark.parametrize("case", [c for c in CASES if len(c.arrays) > 1 and c.op != "dyn.arange"], ids=str)
def test_unknown_sizes_of_the_data(case: Case) -> None:
    check_unknown_sizes(case, _data)


NUMBERS = var("n", TensorType((2,), "int64"))
SCALAR = var("k", TensorType((), "int64"))


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda x: op.reshape(x, NUMBERS), "??"),
        (lambda x: op.broadcast_to(x, op.concatenate([NUMBERS, NUMBERS], 0)), "????"),
        (lambda x: op.tile(x, NUMBERS), "???"),
        (lambda x: op.squeeze(x, NUMBERS), "?"),
        (lambda x: op.expand_dims(x, SCALAR, 2), "?????"),
        (lambda x: op.strided_slice(x, NUMBERS, NUMBERS), "???"),
        (lambda x: op.topk(x, SCALAR, ret_type="values"), [2, 3, "?"]),
        (lambda x: op.one_hot(op.cast(x, "int32"), const(1.0), const(0.0), SCALAR, 1, "float32"), [2, "?", 3, 4]),
        (lambda x: op.full(const(1.0), NUMBERS), "??"),
        (lambda x: op.arange(SCALAR, dtype="int64"), "?"),
    ],
)
def test_type(call: Any, result: Any) -> None:
    shape = tuple(AnySize() if s == "?" else s for s in result)
    assert run_infer_type(as_expr(call(var("x", shape=(2, 3, 4))))).checked_type.shape == shape


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: op.reshape(x, const([6, 4])), "reshape"),
        (lambda x: op.tile(x, const(np.array([2]))), "tile"),
        (lambda x: op.zeros(const([2, 3]), "float32"), "zeros"),
        (lambda x: op.strided_slice(x, const([0]), const([1])), "strided_slice"),
        (lambda x: op.topk(x, const(2), ret_type="values"), "topk"),
        (lambda x: op.nn.pad(x, const([[0, 0]] * 3)), "nn.pad"),
        (lambda x: op.image.resize2d(op.expand_dims(x, 0), const([4, 5])), "image.resize2d"),
        (lambda x: op.squeeze(op.expand_dims(x, 0), const([0])), "squeeze"),
    ],
)
def test_constants_are_attributes(call: Any, name: str) -> None:
    found = call(var("x", shape=(2, 3, 4)))
    assert isinstance(found, Call) and found.op is get(name)


def test_resolve_needs_the_values_alone_that_are_attributes() -> None:
    dynamic = get("dyn.reshape")
    assert resolve(dynamic, [None, None], {"allowzero": False}) is None
    found = resolve(dynamic, [None, _ints(3, -1)], {"allowzero": False})
    assert found == (get("reshape"), (0,), {"newshape": (3, -1), "allowzero": False})
    assert resolve(get("reshape"), [None], {"newshape": (2,)}) is None


def test_a_shape_of_unknown_length() -> None:
    x, n = var("x", shape=(2, 3)), var("n", TensorType((AnySize(),), "int64"))
    with pytest.raises(PullbackError, match="the length of the shape must be known"):
        run_infer_type(Function([x, n], op.reshape(x, n)))
