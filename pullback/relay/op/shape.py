"""Operators that change the shape, the order of axes or the dtype, and what a shape is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import call_op
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    dtype_name,
    dtype_of,
    ints,
    is_any,
    is_dynamic,
    maybe_ints,
    number,
    product,
    rank_of,
    ratio,
    same,
    shape_of,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type

# -- the dtype


def _cast_to(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    return TensorType(x.shape, attrs["dtype"]) if isinstance(x, TensorType) and not x.is_concrete else None


define(
    "cast",
    "data | dtype",
    lambda x, *, dtype: cast(x, dtype),
    relation=_cast_to,
    adapt=lambda args, attrs: (args, {"dtype": dtype_name(attrs["dtype"])}),
    pattern=OpPattern.ELEMWISE,
    shown=("dtype",),
)
define(
    "cast_like",
    "data, dtype_like",
    lambda x, like: cast(x, dtype_of(like)),
    relation=lambda types, attrs: TensorType(types[0].shape, types[1].dtype),
    pattern=OpPattern.ELEMWISE,
)

# -- reshape


def new_shape(shape: Sequence[Any], codes: Sequence[int], allowzero: bool = False) -> list[Any]:
    """The shape that the codes name: 0 copies a size, -1 is what remains, -2 copies all the others, -3 multiplies two,
    -4 splits one into the two that follow (one of which may be -1). A -1 stays where it is."""
    result: list[Any] = []
    at = 0
    codes = list(codes)

    def taken() -> Any:
        nonlocal at
        if at >= len(shape):
            raise ShapeError(f"reshape: newshape {codes} asks for more sizes than the shape ({_shown(shape)}) has")
        at += 1
        return shape[at - 1]

    i = 0
    while i < len(codes):
        code = codes[i]
        i += 1
        if code > 0 or (code == 0 and allowzero):
            result.append(code)
            at += 1
        elif code == 0:
            result.append(taken())
        elif code == -1:
            result.append(-1)
            at += 1
        elif code == -2:
            result += shape[at:]
            at = len(shape)
        elif code == -3:
            result.append(product([taken(), taken()]))
        elif code == -4:
            if i + 2 > len(codes):
                raise ShapeError(f"reshape: -4 in newshape {codes} must be followed by two sizes")
            result += _parted(taken(), codes[i], codes[i + 1], codes)
            i += 2
        else:
            hint = "sizes are positive, or one of the codes 0, -1, -2, -3, -4"
            raise ShapeError(f"reshape: {code} in newshape {codes} is no size", hint=hint)
    if sum(isinstance(s, int) and s == -1 for s in result) > 1:
        raise ShapeError(f"reshape: only one size of newshape {codes} can be -1")
    return result


def _parted(size: Any, first: int, second: int, codes: Sequence[int]) -> list[Any]:
    if first == -1 and second == -1:
        raise ShapeError(f"reshape: both sizes after -4 in newshape {list(codes)} are -1")
    if isinstance(size, AnySize):
        return [AnySize() if s == -1 else s for s in (first, second)]
    if first == -1:
        first = size // second
    if second == -1:
        second = size // first
    if isinstance(size, int) and first * second != size:
        raise ShapeError(f"reshape: -4 cannot split {size} into {first} and {second}")
    return [first, second]


def _shown(shape: Sequence[Any]) -> str:
    return ", ".join("?" if is_any(s) else str(s) for s in shape)


def _reshape_relation(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    codes = attrs["newshape"]
    if attrs.get("reverse"):
        return TensorType(tuple(_resolved(new_shape(x.shape[::-1], codes[::-1]), x.shape, codes)[::-1]), x.dtype)
    return TensorType(tuple(_resolved(new_shape(x.shape, codes, bool(attrs["allowzero"])), x.shape, codes)), x.dtype)


def _resolved(found: list[Any], shape: Sequence[Any], codes: Sequence[int]) -> list[Any]:
    """-1 as a size: the quotient of what is known, where all that is not is copied."""
    if not any(isinstance(s, int) and s == -1 for s in found):
        return found
    rest = [s for s in found if not (isinstance(s, int) and s == -1)]
    size: Any = AnySize()
    if not any(isinstance(s, AnySize) for s in (*shape, *rest)):
        size = ratio(shape, rest)
    elif not {-3, -4} & set(codes) and sum(map(is_any, rest)) == sum(map(is_any, shape)):
        known = [math.prod(s for s in sizes if not is_any(s)) for sizes in (shape, rest)]
        size = known[0] // known[1] if known[1] and known[0] % known[1] == 0 else AnySize()
    return [size if isinstance(s, int) and s == -1 else s for s in found]


def _reshape(x: Any, *, newshape: tuple[int, ...], allowzero: bool) -> Any:
    return ops.reshape(x, tuple(new_shape(shape_of(x), newshape, allowzero)))


def _reverse_reshape(x: Any, *, newshape: tuple[int, ...]) -> Any:
    return ops.reshape(x, tuple(new_shape(shape_of(x)[::-1], newshape[::-1])[::-1]))


def _adapt_reshape(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["newshape"]):
        return call_op("dyn.reshape", args[0], attrs["newshape"], allowzero=bool(attrs["allowzero"]))
    return args, {"newshape": ints("newshape", attrs["newshape"]), "allowzero": bool(attrs["allowzero"])}


define(
    "reshape",
    "data | newshape, allowzero=False",
    _reshape,
    relation=_reshape_relation,
    adapt=_adapt_reshape,
    shown=("newshape",),
    doc="data in another shape. In newshape, 0 copies a size, -1 is what remains, -2 copies all that remain, -3 is\n"
    "the product of two, and -4 splits one into the two sizes that follow. With allowzero, 0 is the size 0.",
    pattern=OpPattern.INJECTIVE,
)


def _reverse_relation(types: list[Type], attrs: Attrs) -> Type | None:
    return _reshape_relation(types, Attrs({**attrs, "reverse": True}))


define(
    "contrib_reverse_reshape",
    "data | newshape",
    _reverse_reshape,
    relation=_reverse_relation,
    adapt=lambda args, attrs: (args, {"newshape": ints("newshape", attrs["newshape"])}),
    shown=("newshape",),
    doc="reshape, whose codes are read from the right.",
    pattern=OpPattern.INJECTIVE,
)


def _like_shape(shape: Sequence[Any], like: Sequence[Any], attrs: Any) -> tuple[Any, ...]:
    begin, end = attrs["lhs_begin"], attrs["lhs_end"]
    first, last = attrs["rhs_begin"], attrs["rhs_end"]
    rank, like_rank = len(shape), len(like)
    begin = begin + rank if begin < 0 else begin
    end = rank if end is None else end + rank if end < 0 else end
    first = first + like_rank if first < 0 else first
    last = like_rank if last is None else last + like_rank if last < 0 else last
    return (*shape[:begin], *like[first:last], *shape[end:])


define(
    "reshape_like",
    "data, shape_like | lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None",
    lambda x, like, **attrs: ops.reshape(x, _like_shape(shape_of(x), shape_of(like), attrs)),
    relation=lambda types, attrs: (
        None
        if all(t.is_concrete for t in types)
        else TensorType(_like_shape(types[0].shape, types[1].shape, attrs), types[0].dtype)
    ),
    doc="data with its axes from lhs_begin to lhs_end in the sizes of shape_like's from rhs_begin to rhs_end.",
    pattern=OpPattern.INJECTIVE,
)


def _expand(x: Any, *, axis: int, num_newaxis: int) -> Any:
    at = axis + rank_of(x) + 1 if axis < 0 else axis
    return ops.expand_dims(x, tuple(range(at, at + num_newaxis))) if num_newaxis else x


def _adapt_expand(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["axis"]):
        return call_op("dyn.expand_dims", args[0], attrs["axis"], num_newaxis=attrs["num_newaxis"])
    return args, attrs | {"axis": ints("axis", attrs["axis"])[0]}


define(
    "expand_dims",
    "data | axis, num_newaxis=1",
    _expand,
    adapt=_adapt_expand,
    pattern=OpPattern.BROADCAST,
    shown=("axis",),
    doc="data with num_newaxis axes of size 1 before the axis; a negative axis counts those of the result.",
)


def _adapt_squeeze(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["axis"]):
        return call_op("dyn.squeeze", args[0], attrs["axis"])
    return args, {"axis": maybe_ints("axis", attrs["axis"])}


def _squeeze(x: Any, *, axis: Any) -> Any:
    if axis is not None and not axis:
        return x
    return ops.squeeze(x, axis)


def _squeezed(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    if attrs["axis"] is None:
        hint = "name the axes: relay.squeeze(x, axis=[0])"
        raise ShapeError(f"squeeze: which of the sizes ({_shown(x.shape)}) are 1 is not known", hint=hint)
    axes = {axis_of("squeeze", a, x.ndim) for a in attrs["axis"]}
    wrong = [x.shape[a] for a in axes if not is_any(x.shape[a]) and x.shape[a] != 1]
    if wrong:
        raise ShapeError(f"squeeze: an axis has size {wrong[0]}, not 1")
    return TensorType(tuple(s for i, s in enumerate(x.shape) if i not in axes), x.dtype)


define("squeeze", "data | axis=None", _squeeze, relation=_squeezed, adapt=_adapt_squeeze, pattern=OpPattern.INJECTIVE)

# -- order


def _order(rank: int, axes: Any) -> tuple[int, ...]:
    return tuple(range(rank))[::-1] if not axes else tuple(axis_of("transpose", a, rank) for a in axes)


define(
    "transpose",
    "data | axes=None",
    lambda x, *, axes: ops.permute_dims(x, _order(rank_of(x), axes)),
    adapt=lambda args, attrs: (args, {"axes": maybe_ints("axes", attrs["axes"])}),
    shown=("axes",),
    doc="data with its axes in another order, by default the reverse.",
    pattern=OpPattern.INJECTIVE,
)
define(
    "reverse",
    "data | axis=None",
    lambda x, *, axis: ops.flip(x, 0 if axis is None else axis),
    adapt=lambda args, attrs: (args, {"axis": None if attrs["axis"] is None else ints("axis", attrs["axis"])[0]}),
    relation=same,
    doc="The elements along the axis in reverse order.",
    pattern=OpPattern.INJECTIVE,
)
define(
    "reverse_sequence",
    "data, seq_lengths | seq_axis=1, batch_axis=0",
    lambda x, lengths, *, seq_axis, batch_axis: ops.reverse_sequence(
        x, lengths, seq_axis=seq_axis, batch_axis=batch_axis
    ),
    relation=same,
    doc="The first seq_lengths[b] elements along seq_axis of each b of batch_axis in reverse order.",
    pattern=OpPattern.INJECTIVE,
)

# -- sizes


def _sizes(x: Any, *, dtype: str) -> Any:
    from pullback import relax

    sizes = shape_of(x)
    if all(isinstance(s, int) for s in sizes):
        import numpy as np

        return relax.const(np.array(sizes, dtype or "int32"))
    return cast(ops.shape_to_tensor(relax.ShapeExpr(sizes)), dtype or "int32")


define(
    "shape_of",
    "data | dtype=''",
    _sizes,
    python={"dtype": "int32"},
    relation=lambda types, attrs: TensorType((types[0].ndim,), attrs["dtype"] or "int32"),
    doc="The sizes of data as a tensor of rank 1.",
    pattern=OpPattern.INJECTIVE,
)


def _count_of(x: Any, *, dtype: str) -> Any:
    return ops.prod(_sizes(x, dtype=dtype)) if rank_of(x) else number(_sizes(x, dtype=dtype), 1)


define(
    "ndarray_size",
    "data | dtype=''",
    _count_of,
    python={"dtype": "int32"},
    relation=lambda types, attrs: TensorType((), attrs["dtype"] or "int32"),
    doc="The number of data's elements.",
    pattern=OpPattern.INJECTIVE,
)
