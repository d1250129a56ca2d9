"""Operators that sort, search, count or add up along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import call_op
from pullback.relay.op.registry import define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    dtype_name,
    dtype_of,
    ints,
    is_dynamic,
    rank_of,
    same,
    same_size,
    shape_of,
    tensors_of,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType, Type


def _typed(args: list[Any], attrs: dict[str, Any]) -> Any:
    return args, attrs | {"dtype": dtype_name(attrs["dtype"])}


define(
    "sort",
    "data | axis=-1, is_ascend=True",
    lambda x, *, axis, is_ascend: ops.sort(x, axis=axis, descending=not is_ascend),
    adapt=lambda args, attrs: (args, attrs | {"is_ascend": bool(attrs["is_ascend"])}),
    relation=same,
    doc="The elements along the axis in order.",
)


def _argsort(x: Any, valid_count: Any = None, *, axis: int, is_ascend: bool, dtype: str) -> Any:
    if valid_count is not None:
        raise ArgumentError("argsort: valid_count is not supported", hint="mask what does not count")
    return cast(ops.argsort(x, axis=axis, descending=not is_ascend, dtype="int64"), dtype or "int32")


define(
    "argsort",
    "data | axis=-1, is_ascend=True, dtype=''",
    _argsort,
    python={"dtype": "int32"},
    adapt=lambda args, attrs: (args, _typed(args, attrs)[1] | {"is_ascend": bool(attrs["is_ascend"])}),
    relation=lambda types, attrs: (
        None if types[0].is_concrete else TensorType(types[0].shape, attrs["dtype"] or "int32")
    ),
    doc="The places of the elements along the axis in the order of their values.",
)


def _topk(x: Any, *, k: int, axis: int, ret_type: str, is_ascend: bool, dtype: str) -> Any:
    count = shape_of(x)[axis_of("topk", axis, rank_of(x))]
    k = count if k < 1 else k
    found = ops.topk(x, k=k, axis=axis, ret_type="both", largest=not is_ascend, dtype="int64")
    values, places = found[0], cast(found[1], dtype or "int32")
    return {"both": (values, places), "values": values, "indices": places}[ret_type]


def topk_type(types: list[TensorType], k: Any, attrs: Any) -> Type:
    x = types[0]
    shape = list(x.shape)
    shape[axis_of("topk", attrs["axis"], x.ndim)] = k
    values, places = TensorType(tuple(shape), x.dtype), TensorType(tuple(shape), attrs["dtype"] or "int32")
    return {"both": TupleType((values, places)), "values": values, "indices": places}[attrs["ret_type"]]


def _topk_relation(types: list[TensorType], attrs: Attrs) -> Type | None:
    if types[0].is_concrete:
        return None
    size = types[0].shape[axis_of("topk", attrs["axis"], types[0].ndim)]
    return topk_type(types, size if attrs["k"] < 1 else attrs["k"], attrs)


def _adapt_topk(args: list[Any], attrs: dict[str, Any]) -> Any:
    attrs = _typed(args, attrs)[1] | {"is_ascend": bool(attrs["is_ascend"])}
    if attrs["ret_type"] not in ("both", "values", "indices"):
        raise ArgumentError(f"topk: ret_type must be 'both', 'values' or 'indices', got {attrs['ret_type']!r}")
    if is_dynamic(attrs["k"]):
        return call_op("dyn.topk", args[0], attrs.pop("k"), **attrs)
    return args, attrs | {"k": ints("k", attrs["k"])[0]}


def both(call: Any) -> int | None:
    """The number of topk's results."""
    return 2 if call.attrs["ret_type"] == "both" else None


define(
    "topk",
    "data | k=1, axis=-1, ret_type='both', is_ascend=False, dtype=''",
    _topk,
    python={"dtype": "int32"},
    shown=("k",),
    adapt=_adapt_topk,
    relation=_topk_relation,
    returns=both,
    doc="The k largest (or smallest) elements along the axis, in order, and their places; all for k < 1.",
)


def _searchsorted(sequence: Any, values: Any, *, right: bool, dtype: str) -> Any:
    return cast(ops.searchsorted(sequence, values, right=right, dtype="int64"), dtype)


define(
    "searchsorted",
    "sorted_sequence, values | right=False, dtype='int32'",
    _searchsorted,
    adapt=_typed,
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, attrs["dtype"])
    ),
    doc="For each value the first (with right the last) place in the sequence at which it could stand.",
)


def _running(name: str) -> Callable[..., Any]:
    def lower(x: Any, *, axis: int | None, dtype: str, exclusive: bool) -> Any:
        x = ops.reshape(x, (-1,)) if axis is None else x
        x = cast(x, dtype or ("int32" if dtype_of(x) == "bool" else ""))
        return getattr(ops, name)(x, axis=0 if axis is None else axis, exclusive=exclusive)

    return lower


def _running_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    x = types[0]
    if x.is_concrete:
        return None
    dtype = attrs["dtype"] or ("int32" if x.dtype == "bool" else x.dtype)
    return TensorType((AnySize(),) if attrs["axis"] is None else x.shape, dtype)


for _name in ("cumsum", "cumprod"):
    define(
        _name,
        "data | axis=None, dtype='', exclusive=False",
        _running(_name),
        adapt=lambda args, attrs: (args, _typed(args, attrs)[1] | {"exclusive": bool(attrs["exclusive"])}),
        relation=_running_type,
        doc=f"Running {'sums' if _name == 'cumsum' else 'products'} along the axis, or of the flattened data;\n"
        "exclusive: without the element itself.",
    )

# -- results whose size depends on values


def _argwhere(values: list[Any], attrs: Any) -> Any:
    return np.argwhere(values[0]).astype("int32")


define(
    "argwhere",
    "condition",
    numpy=_argwhere,
    relation=lambda types, attrs: TensorType((AnySize(), types[0].ndim), "int32"),
    doc="The places of the elements that are not 0, one a row.",
)


def _unique(values: list[Any], attrs: Any) -> Any:
    x = values[0]
    found, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not attrs["sorted"]:  # in the order in which they come
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        found, first, inverse, counts = found[order], first[order], rank[inverse], counts[order]
    number_of = np.array([len(found)], "int32")
    result = (found, first.astype("int32"), inverse.astype("int32"), number_of)
    return (*result, counts.astype("int32")) if attrs["return_counts"] else result


def _unique_type(types: list[TensorType], attrs: Attrs) -> Type:
    x = types[0]
    some = TensorType((AnySize(),), "int32")
    fields = (TensorType((AnySize(),), x.dtype), some, TensorType(x.shape, "int32"), TensorType((1,), "int32"))
    return TupleType((*fields, some) if attrs["return_counts"] else fields)


define(
    "unique",
    "data | sorted=True, return_counts=False",
    numpy=_unique,
    relation=_unique_type,
    returns=lambda call: 5 if call.attrs["return_counts"] else 4,
    doc="The different values of a tensor of rank 1, where each is first, the place of each element among them, how\n"
    "many there are (of shape (1,)), and with return_counts how often each occurs.",
)


def unique(data: Any, is_sorted: bool = True, return_counts: bool = False) -> Any:
    """The different values, their first places, the place of each element among them, their number, and their counts.

    >>> values, first, inverse, count = unique(x)
    """
    return call_op("unique", data, sorted=is_sorted, return_counts=return_counts)


def _segment_sum(x: Any, segments: Any, *, num_segments: int) -> Any:
    return ops.segment_reduce(x, segments, num_segments)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Σ of the data of each segment, as far as ``num_segments``: zeros that data[i] is added to at segment_ids[i]."""
    if num_segments is None:
        hint = "the number of the last segment and one more: num_segments=3"
        raise ArgumentError("segment_sum: num_segments is missing", hint=hint)
    return call_op("segment_sum", data, segment_ids, num_segments=num_segments)


define(
    "segment_sum",
    "data, segment_ids | num_segments",
    _segment_sum,
    relation=lambda types, attrs: (
        None
        if all(t.is_concrete for t in types)
        else TensorType((attrs["num_segments"], *types[0].shape[1:]), types[0].dtype)
    ),
    shown=("num_segments",),
    doc="y[s, …] = Σ data[n, …] over the n with segment_ids[n] = s.",
)


def _einsum(tensors: list[Any], *, equation: str) -> Any:
    return ops.einsum(tensors, equation)


def _einsum_type(types: list[Type], attrs: Attrs) -> Type | None:
    """The sizes of the letters of the result; of an equation with an ellipsis only where all are known."""
    tensors = tensors_of("einsum", types[0])
    left, arrow, right = attrs["equation"].replace(" ", "").partition("->")
    if all(t.is_concrete for t in tensors) or "..." in left:
        return None
    letters = left.split(",")
    if len(letters) != len(tensors) or any(len(w) != t.ndim for w, t in zip(letters, tensors, strict=True)):
        raise ShapeError(f"einsum: the equation {attrs['equation']!r} does not have the tensors' axes")
    sizes: dict[str, list[Any]] = {}
    for word, tensor in zip(letters, tensors, strict=True):
        for letter, size in zip(word, tensor.shape, strict=True):
            sizes.setdefault(letter, []).append(size)
    if not arrow:
        right = "".join(sorted(letter for letter in sizes if left.count(letter) == 1))
    return TensorType(tuple(same_size("einsum", sizes[letter]) for letter in right), tensors[0].dtype)


define(
    "einsum",
    "data | equation",
    _einsum,
    tuples=True,
    relation=_einsum_type,
    shown=("equation",),
    doc="The sum of products that the equation says, of the tensors of a tuple.",
)
