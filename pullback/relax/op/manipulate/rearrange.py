"""Moving elements: chunk, unbind, roll, diagonal, meshgrid, expand, and slices at positions given as tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Constant, Expr, Tuple
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_results,
    expect_same_dtype,
    known_shape,
    normalize_axis,
    specialize,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Bools, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_tensor, dim, format_shape

# -- chunk, unbind


def _known_size(op: str, x: Any, axis: int) -> tuple[int, int]:
    """An axis counted from the front, and its size, which says how many results there are."""
    at = normalize_axis(op, axis, len(x.shape))
    size = x.shape[at]
    if not isinstance(size, int):
        raise ShapeError(f"{op}: the size of axis {at} says how many results there are: it cannot be symbolic")
    return at, size


def _chunk_expect(x: TensorStructInfo, *, chunks: int, axis: int) -> None:
    expect_int("chunk", "chunks", chunks)
    if chunks < 1:
        raise ShapeError(f"chunk: the number of chunks must be positive, got {chunks}")
    expect_results("chunk", min(chunks, _known_size("chunk", x, axis)[1] or chunks))


def _chunk_cuts(x: Any, chunks: int, axis: int) -> list[int]:
    """Where chunks of ⌈size / chunks⌉ end, all but the last; an axis of size 0 gives as many as were asked for."""
    _, size = _known_size("chunk", x, axis)
    step = -(-size // chunks)
    return list(range(step, size, step)) if size else [0] * (chunks - 1)


composite(
    "chunk",
    "x | chunks, axis=0",
    expect=_chunk_expect,
    decompose=lambda x, *, chunks, axis: ops.split(x, _chunk_cuts(x, chunks, axis), axis),
    numpy=lambda x, *, chunks, axis: tuple(np.split(x, _chunk_cuts(x, chunks, axis), axis)),
    precision="same",
    family="split",
    doc="x cut along an axis into chunks of the size ⌈n/chunks⌉, the last one smaller, as a tuple: at most as many as\n"
    "asked for, none of them empty. PyTorch's chunk; split gives the number that is asked for.",
    samples=[
        sample((6, 2), chunks=3),
        sample((2, 7), chunks=3, axis=1),
        sample((5, 2), chunks=4, axis=-2),
        sample((3,), chunks=1),
        sample((0, 2), chunks=2),
    ],
)


def _unbind(x: Any, *, axis: int) -> Any:
    at, size = _known_size("unbind", x, axis)
    return Tuple(tuple(ops.squeeze(ops.strided_slice(x, [at], [k], [k + 1]), at) for k in range(size)))


def _unbind_expect(x: TensorStructInfo, *, axis: int) -> None:
    size = _known_size("unbind", x, axis)[1]
    if size == 0:
        raise ShapeError("unbind: an axis of size 0 has no slices")
    expect_results("unbind", size)


composite(
    "unbind",
    "x | axis=0",
    expect=_unbind_expect,
    decompose=_unbind,
    numpy=lambda x, *, axis: tuple(np.moveaxis(x, axis, 0)),
    precision="same",
    family="split",
    doc="The slices of x along an axis, which they lack, as a tuple. PyTorch's unbind; the inverse of stack.",
    samples=[sample((3, 4)), sample((2, 3, 2), axis=-2), sample((3,)), sample((1, 0)), sample(Ints((2, 2), -5, 5))],
)

# -- roll


def _shifts(shape: Sequence[Dim], shifts: Any, axis: Any) -> dict[int, int]:
    """By how many places each axis is rolled."""
    given, axes = ((v if isinstance(v, (tuple, list)) else (v,)) for v in (shifts, axis))
    if len(given) != len(axes):
        raise ShapeError(f"roll: {len(axes)} axes need as many shifts, got {shifts!r}")
    result: dict[int, int] = {}
    for shift, a in zip(given, axes, strict=True):
        expect_int("roll", "a shift", shift)
        at = normalize_axis("roll", a, len(shape))
        result[at] = result.get(at, 0) + shift
    return result


def _roll_infer(x: TensorStructInfo, *, shifts: Any, axis: Any) -> TensorStructInfo:
    shape = known_shape("roll", x)
    if axis is None:
        expect_int("roll", "shifts without an axis", shifts)
    else:
        _shifts(shape, shifts, axis)
    return x


def _roll_te(x: te.Tensor, *, shifts: Any, axis: Any) -> te.Tensor:
    if axis is None:
        flat = ops.flatten.te(x)
        return ops.reshape.te(_roll_te(flat, shifts=shifts, axis=0), shape=tuple(x.shape))
    for at, shift in _shifts(x.shape, shifts, axis).items():
        size = x.shape[at]
        if isinstance(size, int):
            x = _rolled(x, at, size, shift)
        else:  # where the axis is cut is not known
            source, n = x, tir.as_expr(size)
            x = te.compute(
                x.shape,
                lambda *i, source=source, at=at, n=n, shift=shift: source[(*i[:at], (i[at] - shift) % n, *i[at + 1 :])],
                "roll",
            )
    return x


def _rolled(x: te.Tensor, axis: int, size: int, shift: int) -> te.Tensor:
    """The last elements of an axis, and then the first ones."""
    cut = -shift % size if size else 0
    if cut == 0:
        return x
    pieces = [
        ops.strided_slice.te(x, axes=[axis], begin=[b], end=[e], strides=None) for b, e in ((cut, size), (0, cut))
    ]
    return ops.concat.te(*pieces, axis=axis)


def _roll_gradient(dy: Any, y: Any, x: Any, *, shifts: Any, axis: Any) -> tuple[Any]:
    back = [-s for s in shifts] if isinstance(shifts, (tuple, list)) else -shifts
    return (ops.roll(dy, back, axis),)


define(
    "roll",
    "x | shifts, axis=None",
    infer=_roll_infer,
    te=lambda x, **attrs: te_copy(_roll_te(x, **attrs), x),
    numpy=lambda x, *, shifts, axis: np.roll(x, shifts, axis),
    gradient=_roll_gradient,
    precision="same",
    family="permute",
    doc="x with its elements moved on by ``shifts`` places along an axis (or a number for each of several); those\n"
    "that leave at the end come in at the beginning. Without an axis the flattened x is rolled, as in NumPy.",
    samples=[
        sample((5,), shifts=2),
        sample((3, 4), shifts=-1, axis=1),
        sample((3, 4), shifts=(1, 6), axis=(0, -1)),
        sample((2, 3), shifts=4),
        sample((3, 17), shifts=0, axis=0),
        sample((0, 3), shifts=1, axis=0),
        sample((2, 5), shifts=(1, 2), axis=(1, 1)),
        sample((), shifts=1),
        sample(Ints((6,), -5, 5), shifts=7),
    ],
)


def te_copy(result: te.Tensor, x: te.Tensor) -> te.Tensor:
    """The result; where it would be x itself, a stage that copies it."""
    return te.compute(x.shape, lambda *i: x[i], "copy") if result is x else result


# -- diagonal


def _diagonal_axes(op: str, ndim: int, offset: Any, axis1: int, axis2: int) -> tuple[int, int]:
    expect_int(op, "offset", offset)
    a, b = normalize_axis(op, axis1, ndim), normalize_axis(op, axis2, ndim)
    if a == b:
        raise ShapeError(f"{op}: axis1 and axis2 are both axis {a}")
    return a, b


def _length(rows: Dim, columns: Dim, offset: int) -> Dim:
    """How many elements a diagonal has."""
    if isinstance(rows, int) and isinstance(columns, int):
        return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    shortest = tir.minimum(tir.as_expr(rows) + min(offset, 0), tir.as_expr(columns) - max(offset, 0))
    return dim(shortest if offset == 0 else tir.maximum(shortest, 0))


def _diagonal_shape(op: str, shape: Sequence[Dim], offset: Any, axis1: int, axis2: int) -> tuple[Dim, ...]:
    a, b = _diagonal_axes(op, len(shape), offset, axis1, axis2)
    return (*(s for k, s in enumerate(shape) if k not in (a, b)), _length(shape[a], shape[b], offset))


def _diagonal_te(x: te.Tensor, *, offset: int, axis1: int, axis2: int) -> te.Tensor:
    a, b = _diagonal_axes("diagonal", x.ndim, offset, axis1, axis2)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        rest = iter(i[:-1])
        places = {a: i[-1] - min(offset, 0), b: i[-1] + max(offset, 0)}
        return x[tuple(places[k] if k in places else next(rest) for k in range(x.ndim))]

    return te.compute(_diagonal_shape("diagonal", x.shape, offset, axis1, axis2), element, "diagonal")


_DIAGONAL_SAMPLES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), {}),
    ((4, 3), {"offset": -1}),
    ((2, 5, 3), {"offset": 1, "axis1": -2, "axis2": 0}),
    ((2, 3, 4), {"axis1": 2, "axis2": 1}),
    ((1, 17), {"offset": 9}),
    ((2, 2), {"offset": 5}),
    ((0, 3), {}),
]

define(
    "diagonal",
    "x | offset=0, axis1=0, axis2=1",
    infer=lambda x, **attrs: TensorStructInfo(
        _diagonal_shape("diagonal", known_shape("diagonal", x), **attrs), x.dtype
    ),
    te=_diagonal_te,
    numpy=lambda x, *, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    gradient=lambda dy, y, x, *, offset, axis1, axis2: (ops.grad.diagonal(dy, x.shape, offset, axis1, axis2),),
    precision="same",
    family="permute",
    doc="The elements of x whose index along axis2 is ``offset`` more than that along axis1, along a new last axis in\n"
    "place of the two. NumPy's diagonal.",
    samples=[*(sample(s, **attrs) for s, attrs in _DIAGONAL_SAMPLES), sample(Bools((3, 3)))],
)


def _spread_infer(dy: TensorStructInfo, *, shape: Any, **attrs: Any) -> TensorStructInfo:
    wanted = _diagonal_shape("grad.diagonal", shape, **attrs)
    given = known_shape("grad.diagonal", dy, "dy")
    if len(wanted) != len(given):
        raise ShapeError(f"grad.diagonal: dy must have the shape {format_shape(wanted)}, got {format_shape(given)}")
    return TensorStructInfo(shape, dy.dtype)


def _spread_te(dy: te.Tensor, *, shape: Any, offset: int, axis1: int, axis2: int) -> te.Tensor:
    a, b = _diagonal_axes("grad.diagonal", len(shape), offset, axis1, axis2)
    zero = tir.const(0, dy.dtype)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        if isinstance(dy.shape[-1], int) and dy.shape[-1] == 0:
            return zero
        rest = [e for k, e in enumerate(i) if k not in (a, b)]
        place = tir.minimum(i[a] + min(offset, 0), tir.as_expr(dy.shape[-1]) - 1)
        return tir.select((i[b] - i[a]).equal(offset), dy[(*rest, tir.maximum(place, 0))], zero)

    return te.compute(shape, element, "diagonal_gradient")


def _spread(dy: np.ndarray, *, shape: Any, offset: int, axis1: int, axis2: int) -> np.ndarray:
    result = np.zeros(shape, dy.dtype)
    a, b = _diagonal_axes("grad.diagonal", len(shape), offset, axis1, axis2)
    places = np.arange(dy.shape[-1])
    np.moveaxis(result, (a, b), (-2, -1))[..., places - min(offset, 0), places + max(offset, 0)] = dy
    return result


define(
    "grad.diagonal",
    "dy | shape, offset=0, axis1=0, axis2=1",
    infer=_spread_infer,
    te=_spread_te,
    numpy=_spread,
    gradient=lambda dx, y, dy, *, shape, offset, axis1, axis2: (ops.diagonal(dx, offset, axis1, axis2),),
    precision="same",
    zeros="makes",
    family="permute",
    doc="The adjoint of diagonal: dy on the diagonal of a tensor of the shape of x, 0 elsewhere.",
    samples=[sample(np.diagonal(np.empty(s), **attrs).shape, shape=s, **attrs) for s, attrs in _DIAGONAL_SAMPLES],
)

# -- meshgrid


def _meshgrid_expect(*tensors: TensorStructInfo, indexing: str) -> None:
    if not tensors:
        raise UserError("meshgrid: there must be at least one tensor")
    if indexing not in ("ij", "xy"):
        raise UserError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    if any(t.ndim != 1 for t in tensors):
        listed = ", ".join(format_shape(t.shape) for t in tensors)
        raise ShapeError(f"meshgrid: the tensors must have rank 1, got the shapes {listed}")
    expect_same_dtype("meshgrid", *tensors)


def _meshgrid(*tensors: Any, indexing: str) -> Any:
    axes = list(range(len(tensors)))
    if indexing == "xy":
        axes[:2] = reversed(axes[:2])
    shape = tuple(tensors[axes.index(a)].shape[0] for a in range(len(axes)))

    def spread(t: Any, axis: int) -> Any:
        ones = [1] * len(axes)
        return ops.broadcast_to(ops.reshape(t, (*ones[:axis], t.shape[0], *ones[axis + 1 :])), shape)

    return Tuple(tuple(spread(t, a) for t, a in zip(tensors, axes, strict=True)))


composite(
    "meshgrid",
    "tensors* | indexing='ij'",
    expect=_meshgrid_expect,
    decompose=_meshgrid,
    numpy=lambda *tensors, indexing: tuple(np.meshgrid(*tensors, indexing=indexing)),
    precision="same",
    family="broadcast",
    doc="The coordinates of a grid, as a tuple: of n tensors of rank 1, the k-th repeated along all axes of the grid\n"
    "but the k-th. indexing 'xy' takes the first two axes in the other order, as in NumPy.",
    samples=[
        sample((3,), (4,)),
        sample((3,), (4,), (2,), indexing="xy"),
        sample((3,), indexing="xy"),
        sample((2,), (0,)),
        sample(Ints((2,), 0, 5), Ints((3,), 0, 5)),
    ],
)

# -- expand


def _expanded(x: Any, shape: Any) -> tuple[Any, ...]:
    """The wanted shape, -1 replaced by the size that x has there."""
    wanted = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    lead = len(wanted) - len(x.shape)
    if lead < 0:
        raise ShapeError(f"expand: {format_shape(x.shape)} has more axes than {wanted}")
    if any(isinstance(s, int) and s == -1 for s in wanted[:lead]):
        raise ShapeError(f"expand: a new axis needs a size, got {wanted}")
    return tuple(x.shape[k - lead] if isinstance(s, int) and s == -1 else s for k, s in enumerate(wanted))


composite(
    "expand",
    "x | shape",
    decompose=lambda x, *, shape: ops.broadcast_to(x, _expanded(x, shape)),
    numpy=lambda x, *, shape: np.array(np.broadcast_to(x, _expanded(x, shape))),
    precision="same",
    family="broadcast",
    doc="broadcast_to, with -1 for an axis that keeps its size. PyTorch's expand.",
    samples=[
        sample((3, 1), shape=(2, -1, 4)),
        sample((1, 5), shape=(-1, -1)),
        sample((), shape=(3,)),
        sample((1,), shape=(0,)),
        sample(Bools((1,)), shape=(3,)),
    ],
)

# -- dynamic_strided_slice


def _positions(name: str, value: Any, ndim: int) -> list[int]:
    """The numbers of a constant tensor, one an axis."""
    if not isinstance(value, Constant):
        raise ShapeError(
            f"dynamic_strided_slice: {name} must be a constant: the shape of the result depends on its values",
            hint="write R.const([0, 1], 'int64'), or use R.strided_slice, whose positions may be symbolic sizes",
        )
    expect_dtype("dynamic_strided_slice", as_tensor(value.struct_info), "integer", name)
    if value.data.shape != (ndim,):
        got = format_shape(value.data.shape)
        raise ShapeError(f"dynamic_strided_slice: {name} must have the shape ({ndim},), got {got}")
    return [int(v) for v in value.data]


class _DynamicSlice(Op):  # positions that are constants are known when the program is compiled
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Expr:
        (x, *positions), _ = self.signature.bind(self.short, args, kwargs)
        ndim = len(known_shape(self.short, x.struct_info, "x"))
        begin, end, strides = itertools.starmap(
            lambda name, value: _positions(name, value, ndim),
            zip(self.signature.tensors[1:], positions, strict=True),
        )
        return ops.strided_slice(x, list(range(ndim)), begin, end, strides)


def _dynamic_slice_infer(*infos: TensorStructInfo) -> TensorStructInfo:
    raise ShapeError("dynamic_strided_slice: begin, end and strides must be constants")


specialize(
    define(
        "dynamic_strided_slice",
        "x, begin, end, strides",
        infer=_dynamic_slice_infer,
        numpy=lambda x, begin, end, strides: x[tuple(itertools.starmap(slice, zip(begin, end, strides, strict=True)))],
        precision="same",
        family="slice",
        doc="x[begin:end:stride] along all axes, as strided_slice has it, with the positions as tensors of rank 1.\n"
        "They must be constants, because the shape of the result depends on them.",
    ),
    _DynamicSlice,
)
