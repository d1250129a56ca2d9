"""Operators that change the shape, or the order of elements, and none of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    python_value,
    quotient,
    rank_of,
    ratio,
    same,
    same_size,
    shape_of,
    tensors_of,
    total,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType, Type

_MOVES = {"pattern": OpPattern.INJECTIVE}

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
    **_MOVES,
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
    **_MOVES,
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
    **_MOVES,
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


define("squeeze", "data | axis=None", _squeeze, relation=_squeezed, adapt=_adapt_squeeze, **_MOVES)

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
    **_MOVES,
)
define(
    "reverse",
    "data | axis=None",
    lambda x, *, axis: ops.flip(x, 0 if axis is None else axis),
    adapt=lambda args, attrs: (args, {"axis": None if attrs["axis"] is None else ints("axis", attrs["axis"])[0]}),
    relation=same,
    doc="The elements along the axis in reverse order.",
    **_MOVES,
)
define(
    "reverse_sequence",
    "data, seq_lengths | seq_axis=1, batch_axis=0",
    lambda x, lengths, *, seq_axis, batch_axis: ops.reverse_sequence(
        x, lengths, seq_axis=seq_axis, batch_axis=batch_axis
    ),
    relation=same,
    doc="The first seq_lengths[b] elements along seq_axis of each b of batch_axis in reverse order.",
    **_MOVES,
)

# -- several tensors


def _joined(types: list[Type], attrs: Attrs) -> Type | None:
    fields = tensors_of("concatenate", types[0])
    if all(t.is_concrete for t in fields):
        return None
    rank = fields[0].ndim
    if any(t.ndim != rank for t in fields):
        raise ShapeError(f"concatenate: the tensors have {', '.join(str(t.ndim) for t in fields)} axes")
    axis = axis_of("concatenate", attrs["axis"], rank)
    columns = list(zip(*(t.shape for t in fields), strict=True))
    sizes = [same_size("concatenate", c) if i != axis else total(c) for i, c in enumerate(columns)]
    return TensorType(tuple(sizes), fields[0].dtype)


define(
    "concatenate",
    "data | axis=0",
    lambda tensors, *, axis: ops.concat(tensors, axis),
    relation=_joined,
    adapt=lambda args, attrs: (args, {"axis": ints("axis", attrs["axis"])[0]}),
    doc="The tensors of a tuple one after the other along the axis.",
    **_MOVES,
)


def _stacked(types: list[Type], attrs: Attrs) -> Type | None:
    fields = tensors_of("stack", types[0])
    if all(t.is_concrete for t in fields):
        return None
    sizes = [same_size("stack", c) for c in zip(*(t.shape for t in fields), strict=True)]
    sizes.insert(axis_of("stack", attrs["axis"], len(sizes) + 1), len(fields))
    return TensorType(tuple(sizes), fields[0].dtype)


define(
    "stack",
    "data | axis=0",
    lambda tensors, *, axis: ops.stack(tensors, axis),
    relation=_stacked,
    doc="The tensors of a tuple side by side along a new axis.",
    **_MOVES,
)


def _adapt_split(args: list[Any], attrs: dict[str, Any]) -> Any:
    given = python_value(attrs["indices_or_sections"])
    return args, attrs | {"indices_or_sections": given if isinstance(given, int) else ints("indices", given)}


def _parts(call: Any) -> int:
    given = call.attrs["indices_or_sections"]
    return given if isinstance(given, int) else len(given) + 1


def _split(x: Any, *, indices_or_sections: Any, axis: int) -> Any:
    sections, size = indices_or_sections, shape_of(x)[axis_of("split", axis, rank_of(x))]
    if isinstance(sections, int) and isinstance(size, int) and (sections < 1 or size % sections):
        hint = "give the places between the parts: relay.split(x, (2, 5), axis)"
        raise ShapeError(f"split: an axis of size {size} has no {sections} equal parts", hint=hint)
    parts = ops.split(x, sections, axis)
    return tuple(parts[i] for i in range(sections if isinstance(sections, int) else len(sections) + 1))


def _split_type(types: list[Type], attrs: Attrs) -> Type | None:
    x, parts = types[0], attrs["indices_or_sections"]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    axis = axis_of("split", attrs["axis"], x.ndim)
    size = x.shape[axis]
    if isinstance(size, int):
        return None
    if isinstance(parts, int):
        sizes = [quotient(size, parts)] * parts
    else:
        sizes = [b - a for a, b in zip((0, *parts), parts, strict=False)] + [total([size, -parts[-1]])]
    return TupleType(tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes))


define(
    "split",
    "data | indices_or_sections, axis=0",
    _split,
    adapt=_adapt_split,
    relation=_split_type,
    returns=_parts,
    shown=("indices_or_sections",),
    doc="data in several parts along the axis: in so many equal ones, or cut at these places. A tuple.",
    **_MOVES,
)


def _meshgrid(tensors: list[Any], *, indexing: str) -> Any:
    lines = [ops.reshape(t, (1,)) if rank_of(t) == 0 else t for t in tensors]
    grid = ops.meshgrid(lines, indexing=indexing)
    return tuple(grid[i] for i in range(len(lines)))


define(
    "meshgrid",
    "data | indexing='ij'",
    _meshgrid,
    returns=lambda call: _count(call.args[0]),
    doc="The coordinates of a grid: for each tensor of rank 1 (or 0) one with all axes.",
    **_MOVES,
)


def _count(expr: Any) -> int | None:
    return len(expr) if hasattr(expr, "fields") else None


# -- copies


def _repeat(x: Any, *, repeats: int, axis: int | None) -> Any:
    return ops.repeat(x, repeats, axis)


def _repeated(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    if attrs["axis"] is None:
        return TensorType((product([*x.shape, attrs["repeats"]]),), x.dtype)
    axis = axis_of("repeat", attrs["axis"], x.ndim)
    return TensorType(tuple(product([s, attrs["repeats"]]) if i == axis else s for i, s in enumerate(x.shape)), x.dtype)


define(
    "repeat",
    "data | repeats, axis=None",
    _repeat,
    relation=_repeated,
    adapt=lambda args, attrs: (args, attrs | {"repeats": ints("repeats", attrs["repeats"])[0]}),
    pattern=OpPattern.BROADCAST,
    shown=("repeats",),
    doc="Each element so many times in a row along the axis, or of the flattened data.",
)


def _adapt_tile(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["reps"]):
        return call_op("dyn.tile", args[0], attrs["reps"])
    reps = ints("reps", attrs["reps"])
    if any(r < 1 for r in reps):
        raise ShapeError(f"tile: reps must be positive, got {list(reps)}")
    return args, {"reps": reps}


def _tiled(types: list[Type], attrs: Attrs) -> Type | None:
    x, reps = types[0], attrs["reps"]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    rank = max(x.ndim, len(reps))
    shape, reps = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(reps)) + reps
    return TensorType(tuple(product([s, r]) for s, r in zip(shape, reps, strict=True)), x.dtype)


define(
    "tile",
    "data | reps",
    lambda x, *, reps: ops.tile(x, reps),
    adapt=_adapt_tile,
    relation=_tiled,
    pattern=OpPattern.BROADCAST,
    shown=("reps",),
    doc="data as a whole, reps[k] times along each axis.",
)


def _adapt_broadcast(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["shape"]):
        return call_op("dyn.broadcast_to", args[0], attrs["shape"])
    return args, attrs | {"shape": ints("shape", attrs["shape"])}


define(
    "broadcast_to",
    "data | shape, dtype=''",
    lambda x, *, shape, dtype: ops.broadcast_to(x, shape),
    adapt=_adapt_broadcast,
    relation=lambda types, attrs: None if types[0].is_concrete else TensorType(attrs["shape"], types[0].dtype),
    pattern=OpPattern.BROADCAST,
    shown=("shape",),
)
define(
    "broadcast_to_like",
    "data, broadcast_type",
    lambda x, like: ops.broadcast_to(x, shape_of(like)),
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, types[0].dtype)
    ),
    pattern=OpPattern.BROADCAST,
)


def _collapse(x: Any, shape: tuple[Any, ...]) -> Any:
    return x if shape == shape_of(x) else ops.collapse_sum_to(x, shape)


define(
    "collapse_sum_like",
    "data, collapse_type",
    lambda x, like: _collapse(x, shape_of(like)),
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, types[0].dtype)
    ),
    pattern=OpPattern.COMM_REDUCE,
    doc="data summed over the axes along which collapse_type is repeated when it broadcasts to data's shape.",
)


def _adapt_collapse(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["shape"]):
        return call_op("dyn.collapse_sum_to", args[0], attrs["shape"])
    return args, attrs | {"shape": ints("shape", attrs["shape"])}


define(
    "collapse_sum_to",
    "data | shape, dtype=''",
    lambda x, *, shape, dtype: _collapse(x, tuple(shape)),
    relation=lambda types, attrs: None if types[0].is_concrete else TensorType(attrs["shape"], types[0].dtype),
    adapt=_adapt_collapse,
    pattern=OpPattern.COMM_REDUCE,
    shown=("shape",),
    doc="data summed over the axes along which a tensor of the shape is repeated when it broadcasts to data's shape.",
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
    **_MOVES,
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
    **_MOVES,
)

# -- layouts


def letters(layout: str) -> list[tuple[str, int]]:
    """``NCHW4c`` as axes and, of those that are parts, their sizes: [("N", 0), …, ("c", 4)]."""
    found: list[tuple[str, int]] = []
    digits = ""
    for letter in layout:
        if letter.isdigit():
            digits += letter
            continue
        if letter.islower() != bool(digits):
            raise ShapeError(f"layout {layout!r}: parts of an axis are written with their size, as in NCHW4c")
        found.append((letter, int(digits or 0)))
        digits = ""
    names = [letter for letter, _ in found]
    if digits or len(set(names)) != len(names) or any(n.islower() and n.upper() not in names for n in names):
        raise ShapeError(f"{layout!r} is no layout", hint="such as NCHW, or NCHW4c")
    return found


def sizes_of(layout: str, shape: Sequence[Any]) -> dict[str, Any]:
    """The sizes of whole axes, by their letters, of a tensor of the layout."""
    names = [name for name, _ in letters(layout)]
    if len(names) != len(shape):
        raise ShapeError(f"a tensor of the layout {layout} has {len(names)} axes, not {len(shape)}")
    found: dict[str, Any] = {}
    for name, size in zip(names, shape, strict=True):
        found[name.upper()] = product([found.get(name.upper(), 1), size])
    return found


def shape_in(layout: str, sizes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shape of a tensor of the layout whose whole axes have these sizes."""
    blocks = {name.upper(): size for name, size in letters(layout) if size}
    return tuple(size or quotient(sizes[name], blocks.get(name, 1)) for name, size in letters(layout))


def _transformed(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    return TensorType(shape_in(attrs["dst_layout"], sizes_of(attrs["src_layout"], x.shape)), x.dtype)


def layout_transform(x: Any, *, src_layout: str, dst_layout: str) -> Any:
    """``x``, whose axes are ``src_layout``, in ``dst_layout``."""
    source, target = letters(src_layout), letters(dst_layout)
    if len(source) != rank_of(x):
        raise ShapeError(f"layout_transform: data has {rank_of(x)} axes, {src_layout} {len(source)}")
    if {n.upper() for n, _ in source} != {n.upper() for n, _ in target}:
        raise ShapeError(f"layout_transform: {src_layout} and {dst_layout} do not have the same axes")
    names, sizes = [n for n, _ in source], list(shape_of(x))
    for part in [n for n in names if n.islower()]:  # parts go to their axes
        x, names, sizes = _merged(x, names, sizes, part)
    for part, size in [(n, s) for n, s in target if n.islower()]:
        at = names.index(part.upper())
        if isinstance(sizes[at], int) and sizes[at] % size:
            raise ShapeError(f"layout_transform: {part.upper()} has {sizes[at]} elements, no multiple of {size}")
        sizes[at : at + 1] = [sizes[at] // size, size]
        names[at : at + 1] = [part.upper(), part]
        x = ops.reshape(x, tuple(sizes))
    return ops.permute_dims(x, tuple(names.index(n) for n, _ in target))


def _merged(x: Any, names: list[str], sizes: list[Any], part: str) -> tuple[Any, list[str], list[Any]]:
    order = [n for n in names if n != part]
    order.insert(order.index(part.upper()) + 1, part)
    x = ops.permute_dims(x, tuple(names.index(n) for n in order))
    sizes = [sizes[names.index(n)] for n in order]
    at = order.index(part.upper())
    sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    del order[at + 1]
    return ops.reshape(x, tuple(sizes)), order, sizes


define(
    "layout_transform",
    "data | src_layout, dst_layout",
    layout_transform,
    relation=_transformed,
    shown=("src_layout", "dst_layout"),
    doc="data, whose axes are src_layout, in dst_layout: NCHW → NHWC, or NCHW → NCHW4c with a part of an axis.",
    **_MOVES,
)
