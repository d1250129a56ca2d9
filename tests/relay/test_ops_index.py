"""relay's operators that take, put, sort and count elements, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Function, Tuple, as_expr, call_op, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from tests.relay.op_cases import Case, check_unknown_sizes, check_value, every, first, integers, normal, uniform

X = normal(4, 5, 6)
PLACES = np.array([[0, 3, 1], [2, 2, 0]], "int64")


def _slice(expect: Any, begin: Any, end: Any, **attrs: Any) -> Case:
    return Case("strided_slice", [X], expect, attrs={"begin": begin, "end": end} | attrs)


def _set(begin: list[int], end: list[int], strides: list[int], *shape: int) -> Case:
    def expect(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        result = x.copy()
        result[tuple(slice(*b) for b in zip(begin, end, strides, strict=True))] = v
        return result

    return Case("strided_set", [X, normal(*shape)], expect, lambda x, v: op.strided_set(x, v, begin, end, strides))


def _scatter(x: np.ndarray, i: np.ndarray, u: np.ndarray, put: Any, axis: int) -> np.ndarray:
    result = x.copy()
    for place in np.ndindex(*i.shape):
        to = list(place)
        to[axis] = i[place]
        result[tuple(to)] = put(result[tuple(to)], u[place])
    return result


def _scatter_nd(x: np.ndarray, i: np.ndarray, u: np.ndarray, put: Any) -> np.ndarray:
    result = x.copy()
    for place in np.ndindex(*i.shape[1:]):
        to = tuple(i[(slice(None), *place)])
        result[to] = put(result[to], u[place])
    return result


PUT = {
    "update": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
}


def _diagonals(x: np.ndarray, d: np.ndarray, k: tuple[int, int], align: str) -> np.ndarray:
    result = x.copy()
    rows, columns = x.shape[-2:]
    above, below = align.split("_")
    for n, diagonal in enumerate(range(k[1], k[0] - 1, -1)):
        length = min(rows + min(diagonal, 0), columns - max(diagonal, 0))
        side = above if diagonal >= 0 else below
        start = d.shape[-1] - length if side == "RIGHT" else 0
        for j in range(length):
            value = d[..., j] if k[0] == k[1] else d[..., n, start + j]
            result[..., j - min(diagonal, 0), j + max(diagonal, 0)] = value
    return result


def _adv(*arrays: np.ndarray) -> np.ndarray:
    return arrays[0][tuple(arrays[1:])]


CASES = [
    Case("where", [integers(0, 2, 3, 1, dtype="bool"), normal(4), normal(3, 4)], np.where),
    Case("where", [integers(-1, 2, 3, 4), normal(3, 4), normal(3, 4)], lambda c, x, y: np.where(c != 0, x, y)),
    _slice(lambda x: x[0:2, 1:4], [0, 1], [2, 4]),
    _slice(lambda x: x[0:2, 1:5:2], [0, 1], [2, 5], strides=[1, 2]),
    _slice(lambda x: x[1:9, -3:-1], [1, -3], [9, -1]),
    _slice(lambda x: x[:, :, ::-1], [-1], [-99], strides=[-1], axes=[2]),
    _slice(lambda x: x[1:3, 2:5], [1, 2], [2, -1], slice_mode="size"),
    _slice(lambda x: x[:, 1:2], [None, 1], [None, 2]),
    Case("slice_like", [X, normal(2, 3, 4)], lambda x, y: x[:2, :3, :4]),
    Case("slice_like", [X, normal(9, 3, 4)], lambda x, y: x[:, :3, :4], attrs={"axes": (1, -1)}),
    _set([0, 1, 0], [2, 4, 6], [1, 1, 2], 2, 3, 3),
    _set([-1, 4, 5], [-4, 0, 0], [-1, -2, -1], 3, 2, 5),
    Case("take", [X, PLACES], lambda x, i: x[:, i], attrs={"axis": 1}),
    Case("take", [X, PLACES], lambda x, i: x[..., i], attrs={"axis": -1}),
    Case("take", [X, integers(0, 119, 2, 2)], lambda x, i: x.reshape(-1)[i]),
    Case("take", [X, np.array(2)], lambda x, i: x[:, 2], attrs={"axis": 1}),
    Case("take", [X, np.array([-7, 9])], lambda x, i: x[:, [0, 4]], attrs={"axis": 1}),
    Case("take", [X, np.array([-7, 9])], lambda x, i: x[:, [3, 4]], attrs={"axis": 1, "mode": "wrap"}),
    Case("take", [X, np.array([1, 3])], lambda x, i: x[:, [1, 3]], attrs={"axis": 1, "mode": "fast"}),
    Case(
        "take",
        [X, integers(0, 5, 4, 2, 3)],
        lambda x, i: np.stack([x[b][i[b]] for b in range(4)]),
        attrs={"axis": 1, "batch_dims": 1},
    ),
    Case(
        "take",
        [X, integers(0, 6, 4, 2)],
        lambda x, i: np.stack([x[b][:, i[b]] for b in range(4)]),
        attrs={"axis": 2, "batch_dims": 1},
    ),
    Case(
        "gather",
        [X, integers(0, 5, 4, 2, 6, dtype="int64")],
        lambda x, i: np.take_along_axis(x, i, 1),
        lambda x, i: op.gather(x, 1, i),
    ),
    Case("gather_nd", [X, np.array([[0, 3], [4, 1]])], lambda x, i: x[tuple(i)], dynamic=False),
    Case("gather_nd", [X, integers(0, 4, 3, 2, 2)], lambda x, i: x[tuple(i)], attrs={"index_rank": 3}),
    Case(
        "gather_nd",
        [X, integers(0, 5, 1, 4, 2)],
        lambda x, i: np.stack([x[b][i[0, b]] for b in range(4)]),
        attrs={"batch_dims": 1, "index_rank": 1},
    ),
    Case("adv_index", [X, PLACES, np.array([1, 0, 4])], _adv, lambda *a: op.adv_index(Tuple(list(a)))),
    *(
        Case(
            "scatter_elements",
            [normal(3, 4), np.array([[1, 0, 3], [2, 2, 0]]), normal(2, 3)],
            lambda x, i, u, put=put: _scatter(x, i, u, put, 1),
            attrs={"axis": 1, "reduction": name},
        )
        for name, put in PUT.items()
    ),
    *(
        Case(
            "scatter_nd",
            [normal(3, 4, 2), np.array([[0, 2, 2], [1, 3, 0]]), normal(3, 2)],
            lambda x, i, u, put=put: _scatter_nd(x, i, u, put),
            attrs={"mode": name},
        )
        for name, put in PUT.items()
    ),
    Case(
        "sparse_to_dense",
        [np.array([[0, 1], [2, 0]], "int32"), np.array([1.5, 2.5], "float32")],
        lambda i, v: np.array([[9, 1.5], [9, 9], [2.5, 9]], "float32"),
        lambda i, v: op.sparse_to_dense(i, (3, 2), v, const(9.0)),
    ),
    Case(
        "sparse_to_dense",
        [np.array([1, 3], "int32"), np.array(7, "int32")],
        lambda i, v: np.array([0, 7, 0, 7, 0], "int32"),
        lambda i, v: op.sparse_to_dense(i, (5,), v),
    ),
    Case(
        "sparse_to_dense",
        [np.array(2, "int32"), np.array(7, "int32")],
        lambda i, v: np.array([0, 0, 7], "int32"),
        lambda i, v: op.sparse_to_dense(i, [3], v),
    ),
    Case(
        "one_hot",
        [integers(-1, 4, 2, 3)],
        lambda i: np.where(i[..., None] == np.arange(3), np.float32(5), np.float32(-1)),
        lambda i: op.one_hot(i, const(5.0), const(-1.0), 3, -1, "float32"),
    ),
    Case(
        "one_hot",
        [integers(0, 3, 2, 3)],
        lambda i: (i[:, None] == np.arange(3)[:, None]).astype("int32"),
        lambda i: op.one_hot(i, const(1), const(0), 3, 1, "int32"),
    ),
    Case(
        "sequence_mask",
        [normal(4, 2, 3), np.array([1, 3], "int32")],
        lambda x, n: np.where((np.arange(4)[:, None] < n)[..., None], x, np.float32(-1)),
        attrs={"mask_value": -1.0},
    ),
    Case(
        "sequence_mask",
        [normal(2, 4), np.array([1, 3], "int32")],
        lambda x, n: np.where(np.arange(4) < n[:, None], x, np.float32(0)),
        attrs={"axis": 1},
    ),
    *(
        Case(
            "matrix_set_diag",
            [normal(2, 4, 5), normal(2, 3, 4)],
            lambda x, d, align=align: _diagonals(x, d, (-1, 1), align),
            lambda x, d, align=align: op.matrix_set_diag(x, d, (-1, 1), align),
        )
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
    ),
    Case(
        "matrix_set_diag",
        [normal(3, 5), normal(3)],
        lambda x, d: _diagonals(x, d, (1, 1), "RIGHT_LEFT"),
        lambda x, d: op.matrix_set_diag(x, d, 1),
    ),
    Case(
        "matrix_set_diag",
        [normal(3, 5), normal(3)],
        lambda x, d: _diagonals(x, d, (0, 0), "RIGHT_LEFT"),
        op.matrix_set_diag,
    ),
    Case("trilu", [X], np.triu, lambda x: op.trilu(x, 0)),
    Case("trilu", [X], lambda x: np.tril(x, -1), lambda x: op.trilu(x, const(-1), upper=False)),
    Case("trilu", [X, np.array(1)], lambda x, k: np.triu(x, 1)),
    Case(
        "unravel_index",
        [np.array([22, 5, 0]), np.array([2, 3, 4])],
        lambda i, s: np.array(np.unravel_index(i, s)),
    ),
    Case("invert_permutation", [np.array([2, 0, 3, 1], "int32")], lambda p: np.argsort(p).astype("int32")),
    Case("sort", [X], lambda x: np.sort(x, 1), attrs={"axis": 1}),
    Case("sort", [X], lambda x: -np.sort(-x), attrs={"is_ascend": False}),
    Case("argsort", [X], lambda x: np.argsort(x, 1).astype("int32"), attrs={"axis": 1}),
    Case("argsort", [X], lambda x: np.argsort(-x), attrs={"is_ascend": 0, "dtype": "int64"}),
    Case("topk", [X], lambda x: (-np.sort(-x)[..., :2], np.argsort(-x)[..., :2].astype("int32")), attrs={"k": 2}),
    Case(
        "topk",
        [X],
        lambda x: np.sort(x, 1)[:, :3],
        attrs={"k": 3, "axis": 1, "ret_type": "values", "is_ascend": True},
    ),
    Case("topk", [X], lambda x: np.argsort(-x), attrs={"k": 0, "ret_type": "indices", "dtype": "int64"}),
    Case(
        "searchsorted",
        [np.array([1.0, 2, 2, 5], "float32"), np.array([[0, 2, 9]], "float32")],
        lambda s, v: np.searchsorted(s, v).astype("int32"),
    ),
    Case(
        "searchsorted",
        [np.array([[1.0, 2, 2, 5], [0, 0, 0, 1]], "float32"), np.array([[0, 2, 9], [0, 1, 2]], "float32")],
        lambda s, v: np.stack([np.searchsorted(a, b, "right") for a, b in zip(s, v, strict=True)]),
        attrs={"right": True, "dtype": "int64"},
    ),
    Case("cumsum", [X], lambda x: x.cumsum(1), attrs={"axis": 1}),
    Case("cumsum", [normal(2, 3)], lambda x: x.cumsum()),
    Case("cumsum", [integers(0, 2, 5, dtype="bool")], lambda x: x.cumsum(dtype="int32"), attrs={"axis": 0}),
    Case(
        "cumsum",
        [normal(4)],
        lambda x: x.cumsum(dtype="float64") - x,
        attrs={"axis": 0, "dtype": "float64", "exclusive": True},
    ),
    Case("cumprod", [uniform(0.5, 2, 3, 4)], lambda x: x.cumprod(0), attrs={"axis": 0}),
    Case(
        "unique",
        [np.array([3, 1, 3, 2, 1], "int32")],
        lambda x: [np.array(a, "int32") for a in ([1, 2, 3], [1, 3, 0], [2, 0, 2, 1, 0], [3])],
        op.unique,
    ),
    Case(
        "unique",
        [np.array([3, 1, 3, 2, 1], "int32")],
        lambda x: [np.array(a, "int32") for a in ([3, 1, 2], [0, 1, 3], [0, 1, 0, 2, 1], [3], [2, 2, 1])],
        lambda x: op.unique(x, is_sorted=False, return_counts=True),
    ),
    Case("argwhere", [np.array([[0, 2, 0], [1, 0, 3]])], lambda x: np.argwhere(x).astype("int32")),
    Case(
        "segment_sum",
        [normal(5, 3), np.array([0, 2, 0, 1, 2], "int32")],
        lambda x, s: np.stack([x[s == i].sum(0) for i in range(4)]),
        lambda x, s: op.segment_sum(x, s, 4),
    ),
    Case("einsum", [normal(2, 3), normal(3, 4)], lambda a, b: a @ b, lambda a, b: op.einsum([a, b], "ij,jk->ik")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


@pytest.mark.parametrize("loose", [every, first])
@pytest.mark.parametrize("case", [c for c in CASES if c.dynamic], ids=str)
def test_unknown_sizes(case: Case, loose: Any) -> None:
    check_unknown_sizes(case, loose)


UNKNOWN = AnySize()


@pytest.mark.parametrize(
    ("call", "shapes", "result"),
    [
        (lambda x, i: op.take(x, i, axis=0), [(9, 4), (UNKNOWN,)], (UNKNOWN, 4)),
        (lambda x, i: op.take(x, i, axis=1), [(UNKNOWN, 4), (2, 3)], (UNKNOWN, 2, 3)),
        (lambda x, i: op.gather_nd(x, i), [(UNKNOWN, 4, 5), (2, UNKNOWN)], (UNKNOWN, 5)),
        (lambda x, i: op.strided_slice(x, [0, 1], [2, 3]), [(UNKNOWN, 4), (1,)], (UNKNOWN, 2)),
        (lambda x, i: op.strided_slice(x, [1], [3], axes=[1]), [(UNKNOWN, 4), (1,)], (UNKNOWN, 2)),
        (lambda x, i: op.where(op.cast(i, "bool"), x, x), [(UNKNOWN, 4), (4,)], (UNKNOWN, 4)),
        (lambda x, i: op.one_hot(i, const(1.0), const(0.0), 7, -1, "float32"), [(1,), (UNKNOWN,)], (UNKNOWN, 7)),
        (lambda x, i: op.topk(x, 2, ret_type="values"), [(UNKNOWN, 4), (1,)], (UNKNOWN, 2)),
        (lambda x, i: op.argwhere(x), [(3, 4), (1,)], (UNKNOWN, 2)),
        (lambda x, i: op.cumsum(x, 0), [(UNKNOWN, 4), (1,)], (UNKNOWN, 4)),
        (lambda x, i: op.scatter_elements(x, i, x), [(UNKNOWN, 4), (2, 3)], (UNKNOWN, 4)),
    ],
)
def test_type(call: Any, shapes: Any, result: Any) -> None:
    x, i = var("x", TensorType(shapes[0])), var("i", TensorType(shapes[1], "int32"))
    assert run_infer_type(as_expr(call(x, i))).checked_type.shape == result


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: op.take(x, const([0]), axis=7), "no axis 7"),
        (lambda x: op.take(x, const([0]), axis=0, mode="bounce"), "mode must be"),
        (lambda x: op.strided_slice(x, [0], [1], slice_mode="middle"), "slice_mode"),
        (lambda x: op.strided_slice(x, [0, 0], [1], axes=[0]), "1 axes, but 2 begins"),
        (lambda x: op.strided_slice(x, [0] * 4, [1] * 4), "there are 4 begins"),
        (lambda x: op.strided_slice(x, [0], [1], strides=[0]), "stride cannot be 0"),
        (lambda x: op.slice_like(x, op.zeros((9, 9, 9), "float32")), "has 4 elements"),
        (lambda x: op.topk(x, 2, ret_type="all"), "ret_type"),
        (lambda x: op.matrix_set_diag(x, x, align="UP_DOWN"), "align must be"),
        (lambda x: op.segment_sum(x, const([0])), "num_segments"),
        (lambda x: op.gather(x, 1), "indices"),
        (lambda x: op.gather(x, 1, x, 3), "takes 3 arguments"),
        (lambda x: call_op("gather", x, axis=1), "indices"),
    ],
)
def test_errors(call: Any, words: str) -> None:
    x = var("x", shape=(4, 5, 6))
    with pytest.raises(PullbackError) as raised:
        run_infer_type(Function([x], as_expr(call(x))))
    assert words in str(raised.value)


def test_arguments_in_the_order_of_text() -> None:
    x, i = var("x", shape=(4, 5)), var("i", shape=(4, 2), dtype="int64")
    face, printed = op.gather(x, 1, i), op.gather(x, i, axis=1)
    assert face.args == printed.args == (x, i)
    assert face.attrs == printed.attrs == {"axis": 1}
