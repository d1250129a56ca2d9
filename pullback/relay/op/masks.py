"""Operators that choose by the places of elements: one hot, masks, triangles, diagonals, coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ArgumentError
from pullback.relax.op.namespace import ops
from pullback.relay.expr import Expr, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    dtype_name,
    dtype_of,
    ints,
    is_dynamic,
    number,
    places,
    rank_of,
    same,
    shape_of,
)
from pullback.relay.ty import TensorType


def _one_hot(indices: Any, on: Any, off: Any, *, depth: int, axis: int, dtype: str) -> Any:
    dtype = dtype or dtype_of(on)
    rank = rank_of(indices) + 1
    at = axis_of("one_hot", axis, rank)
    classes = ops.reshape(places(range(depth), dtype_of(indices)), tuple(-1 if i == at else 1 for i in range(rank)))
    chosen = ops.equal(ops.expand_dims(indices, at), classes)
    return ops.where(chosen, _one(cast(on, dtype)), _one(cast(off, dtype)))


def _one(value: Any) -> Any:
    return ops.reshape(value, ()) if shape_of(value) else value


def one_hot_shape(indices: TensorType, depth: Any, axis: int) -> tuple[Any, ...]:
    shape = list(indices.shape)
    shape.insert(axis_of("one_hot", axis, len(shape) + 1), depth)
    return tuple(shape)


def _adapt_one_hot(args: list[Any], attrs: dict[str, Any]) -> Any:
    args = [args[0], *(v if isinstance(v, Expr) else const(v) for v in args[1:])]
    attrs = attrs | {"dtype": dtype_name(attrs["dtype"])}
    if is_dynamic(attrs["depth"]):
        return call_op("dyn.one_hot", *args, attrs["depth"], axis=attrs["axis"], dtype=attrs["dtype"])
    return args, attrs | {"depth": ints("depth", attrs["depth"])[0]}


define(
    "one_hot",
    "indices, on_value, off_value | depth=1, axis=-1, dtype=''",
    _one_hot,
    adapt=_adapt_one_hot,
    relation=lambda types, attrs: (
        None
        if types[0].is_concrete
        else TensorType(one_hot_shape(types[0], attrs["depth"], attrs["axis"]), attrs["dtype"] or types[1].dtype)
    ),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="on_value where the place along a new axis of size depth is the index, else off_value.",
)


def _sequence_mask(x: Any, lengths: Any, *, mask_value: float, axis: int) -> Any:
    rank = rank_of(x)
    steps = ops.reshape(places(range(shape_of(x)[axis]), "int64"), tuple(-1 if i == axis else 1 for i in range(rank)))
    batch = 1 - axis
    valid = ops.reshape(cast(lengths, "int64"), tuple(-1 if i == batch else 1 for i in range(rank)))
    return ops.where(ops.less(steps, valid), x, number(x, mask_value))


define(
    "sequence_mask",
    "data, valid_length | mask_value=0.0, axis=0",
    _sequence_mask,
    relation=same,
    doc="mask_value from place valid_length[b] on along the axis (0 or 1) of each b of the other one.",
    pattern=OpPattern.INJECTIVE,
)


def _set_diagonal(
    x: Any, diagonal: Any, *, k1: int, k2: int, super_diag_right_align: bool, sub_diag_right_align: bool
) -> Any:
    *batch, rows, columns = shape_of(x)
    i, j = np.indices((rows, columns))
    k = j - i
    inside = (k >= k1) & (k <= k2)
    along = np.minimum(i, j)
    if k1 == k2:
        values = ops.take(diagonal, relax.const(np.where(inside, along, 0).reshape(-1)), len(batch))
    else:
        longest = shape_of(diagonal)[-1]
        lengths = np.minimum(rows + np.minimum(k, 0), columns - np.maximum(k, 0))
        right = np.where(k >= 0, super_diag_right_align, sub_diag_right_align)
        place = (k2 - k) * longest + along + np.where(right, longest - lengths, 0)
        flat = ops.reshape(diagonal, (*batch, (k2 - k1 + 1) * longest))
        values = ops.take(flat, relax.const(np.where(inside, place, 0).reshape(-1)), len(batch))
    return ops.where(relax.const(inside), ops.reshape(values, (*batch, rows, columns)), x)


_ALIGN = {
    "RIGHT_RIGHT": (True, True),
    "RIGHT_LEFT": (True, False),
    "LEFT_RIGHT": (False, True),
    "LEFT_LEFT": (False, False),
}


def matrix_set_diag(data: Any, diagonal: Any, k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    """data with diagonal in the place of its k-th diagonals: k is one of them, or the lowest and the highest.

    ``align`` says where the shorter of several diagonals stand in their rows, those above and those below the main one.
    """
    if align not in _ALIGN:
        raise ArgumentError(f"matrix_set_diag: align must be one of {', '.join(_ALIGN)}, got {align!r}")
    found = ints("k", k)
    above, below = _ALIGN[align]
    return call_op(
        "matrix_set_diag",
        data,
        diagonal,
        k1=found[0],
        k2=found[-1],
        super_diag_right_align=above,
        sub_diag_right_align=below,
    )


define(
    "matrix_set_diag",
    "data, diagonal | k1=0, k2=0, super_diag_right_align=True, sub_diag_right_align=False",
    _set_diagonal,
    relation=same,
    doc="data with other diagonals, from the k1-th to the k2-th.",
    pattern=OpPattern.INJECTIVE,
)


def _trilu(x: Any, k: Any, *, upper: bool) -> Any:
    rows, columns = shape_of(x)[-2:]
    i, j = np.indices((rows, columns))
    offset = cast(ops.reshape(k, ()), "int64")
    compare = ops.greater_equal if upper else ops.less_equal
    return ops.where(compare(relax.const(j - i), offset), x, number(x, 0))


define(
    "trilu",
    "data, k | upper=True",
    _trilu,
    adapt=lambda args, attrs: ([args[0], args[1] if isinstance(args[1], Expr) else const(args[1], "int64")], attrs),
    order=("data", "k", "upper"),
    relation=same,
    shown=("upper",),
    doc="data on and above (or, without upper, below) the k-th diagonal of the last two axes, else 0.",
    pattern=OpPattern.INJECTIVE,
)


def _unravel(indices: Any, shape: Any) -> Any:
    """The coordinates along the first axis."""
    count = shape_of(shape)[0]
    rest, found = indices, []
    for axis in reversed(range(count)):
        size = cast(ops.reshape(ops.strided_slice(shape, [0], [axis], [axis + 1]), ()), dtype_of(indices))
        found.append(ops.mod(rest, size))
        rest = ops.floor_divide(rest, size)
    return ops.stack(found[::-1], 0)


define(
    "unravel_index",
    "indices, shape",
    _unravel,
    relation=lambda types, attrs: TensorType((types[1].shape[0], *types[0].shape), types[0].dtype),
    doc="The coordinates of places in a flattened tensor of the shape, which is a tensor; along the first axis.",
    pattern=OpPattern.INJECTIVE,
)
define(
    "invert_permutation",
    "data",
    lambda x: ops.scatter_elements(ops.zeros_like(x), x, places(range(shape_of(x)[0]), dtype_of(x))),
    relation=same,
    doc="y[data[i]] = i.",
    pattern=OpPattern.INJECTIVE,
)
