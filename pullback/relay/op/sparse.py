"""Sparse tensors in coordinate form: indices, a row for each element, and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import define
from pullback.relay.op.rules import cast, number, shape_of
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType, Type


def _sparse_reshape(indices: Any, old: Any, new: Any) -> tuple[Any, Any]:
    """The place of each element in the flattened tensor says where it is in the other shape."""
    indices, old, new = (cast(t, "int64") for t in (indices, old, new))

    def at(x: Any, k: int) -> Any:
        return ops.reshape(ops.strided_slice(x, [0], [k], [k + 1]), ())

    inferred = ops.equal(new, number(new, -1))
    known = ops.prod(ops.where(inferred, number(new, 1), new))
    new = ops.where(inferred, ops.floor_divide(ops.prod(old), known), new)
    place = None
    for k in range(shape_of(old)[0]):
        column = ops.reshape(ops.strided_slice(indices, [1], [k], [k + 1]), (-1,))
        place = column if place is None else ops.add(ops.multiply(place, at(old, k)), column)
    columns = []
    for k in reversed(range(shape_of(new)[0])):
        columns.append(ops.mod(place, at(new, k)))
        place = ops.floor_divide(place, at(new, k))
    return ops.stack(columns[::-1], 1), new


define(
    "sparse_reshape",
    "sparse_indices, prev_shape, new_shape",
    _sparse_reshape,
    relation=lambda types, attrs: TupleType(
        (TensorType((types[0].shape[0], types[2].shape[0]), "int64"), TensorType(types[2].shape, "int64"))
    ),
    returns=2,
    doc="(indices, shape) of a sparse tensor in another shape, of which one size may be -1.",
)


def _fill_empty_rows(values: list[Any], attrs: Any) -> Any:
    indices, elements, shape, default = values
    rows = int(shape.reshape(-1)[0])
    empty = ~np.isin(np.arange(rows), indices[:, 0])
    added = np.zeros((int(empty.sum()), indices.shape[1]), indices.dtype)
    added[:, 0] = np.flatnonzero(empty)
    indices = np.concatenate([indices, added])
    elements = np.concatenate([elements, np.full(len(added), default.reshape(-1)[0], elements.dtype)])
    order = np.lexsort(indices.T[::-1])
    return indices[order], elements[order], empty


def _filled_type(types: list[TensorType], attrs: Attrs) -> Type:
    some = AnySize()
    indices = TensorType((some, types[0].shape[1]), types[0].dtype)
    return TupleType((indices, TensorType((some,), types[1].dtype), TensorType((some,), "bool")))


define(
    "sparse_fill_empty_rows",
    "sparse_indices, sparse_values, dense_shape, default_value",
    numpy=_fill_empty_rows,
    relation=_filled_type,
    returns=3,
    doc="(indices, values, empty) of a sparse matrix whose empty rows get a first element, default_value; and which\n"
    "they were.",
)
