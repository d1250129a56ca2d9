"""The same elements in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import (
    broadcast_index,
    broadcast_shapes,
    expect_dtype,
    in_wide,
    known_shape,
    normalize_axes,
    normalize_axis,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import te_cast, te_sum
from pullback.relax.op.sample import Bools, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, dim, format_shape, same_shape
from pullback.tir.polynomial import quotient, same

# -- reshape and its kin


def te_reshape(x: te.Tensor, shape: Sequence[Dim], name: str = "reshape") -> te.Tensor:
    """The elements in row-major order. Axes are matched in the smallest groups of equal size, so that an axis which
    stays keeps its index and only what really changes is divided."""
    if 0 in shape:  # nothing is ever read
        return te.compute(shape, lambda *i: x[(i[tuple(shape).index(0)],) * x.ndim], name)
    groups = _groups(tuple(x.shape), tuple(shape))

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        index: list[tir.PrimExpr] = []
        for sources, targets in groups:
            if len(sources) == len(targets) == 1:
                index.append(i[targets[0]])
                continue
            flat = tir.as_expr(0)
            for a in targets:
                flat = flat * tir.as_expr(shape[a]) + i[a]
            index.extend(_unravel(flat, [x.shape[a] for a in sources]))
        return x[tuple(index)]

    return te.compute(shape, element, name)


def _unravel(flat: tir.PrimExpr, sizes: Sequence[Dim]) -> list[tir.PrimExpr]:
    """The index along each axis of the element with the row-major number ``flat``."""
    index: list[tir.PrimExpr] = []
    for n, size in enumerate(reversed(sizes)):
        index.append(flat if n == len(sizes) - 1 else flat % size)
        flat = flat // size
    return [tir.as_expr(0) if s == 1 else e for s, e in zip(sizes, reversed(index), strict=True)]


def _groups(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]]:
    """Consecutive axes of both shapes that hold the same number of elements, in the smallest groups."""
    groups: list[tuple[list[int], list[int]]] = []
    a = b = 0
    while a < len(source) or b < len(target):
        left, right = [*range(a, min(a + 1, len(source)))], [*range(b, min(b + 1, len(target)))]
        while not same(_product(source, left), _product(target, right)):
            big = _exceeds(_product(source, left), _product(target, right))
            if big is None:  # symbolic: everything that is left is one group
                left, right = [*range(a, len(source))], [*range(b, len(target))]
                break
            grow, shape = (right, target) if big else (left, source)
            grow.append(grow[-1] + 1 if grow else b if big else a)
            assert grow[-1] < len(shape)
        groups.append((left, right))
        a, b = a + len(left), b + len(right)
    return groups


def _product(shape: Sequence[Dim], axes: Sequence[int]) -> Any:
    return math.prod((shape[a] for a in axes), start=1)


def _exceeds(a: Dim, b: Dim) -> bool | None:
    return a > b if isinstance(a, int) and isinstance(b, int) else None


def _reshape_infer(x: TensorStructInfo, *, shape: Any) -> TensorStructInfo:
    own = known_shape("reshape", x)
    given = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    free = [n for n, s in enumerate(given) if isinstance(s, int) and s == -1]
    if len(free) > 1:
        raise ShapeError(f"reshape: only one size may be -1, got {tuple(given)}")
    total = dim(math.prod(own, start=1))
    if free:
        rest = math.prod((s for n, s in enumerate(given) if n not in free), start=1)
        if isinstance(total, int) and isinstance(rest, int) and (rest == 0 or total % rest):
            raise ShapeError(f"reshape: {format_shape(own)} has {total} elements: no size fits {tuple(given)}")
        given[free[0]] = _quotient(own, [s for n, s in enumerate(given) if n not in free])
    wanted = tuple(dim(s) for s in given)
    if not same(math.prod(wanted, start=1), total):
        raise ShapeError(f"reshape: {format_shape(own)} and {format_shape(wanted)} differ in their number of elements")
    return TensorStructInfo(wanted, x.dtype)


def _quotient(own: Sequence[Dim], divisors: Sequence[Dim]) -> Dim:
    """Π own / Π divisors, equal factors cancelled, so that symbolic sizes stay simple."""
    left, right = list(own), []
    for d in divisors:
        match = next((n for n, s in enumerate(left) if same(s, d)), None)
        right.append(d) if match is None else left.pop(match)
    return quotient(math.prod(left, start=1), math.prod(right, start=1))


def _reshaped(x: Any, y: Any) -> Any:
    """The adjoint of whatever keeps the row-major order."""
    return ops.reshape(x, y.shape)


define(
    "reshape",
    "x | shape",
    infer=_reshape_infer,
    te=lambda x, *, shape: te_reshape(x, _reshape_infer(_info(x), shape=shape).sizes),
    numpy=lambda x, *, shape: np.reshape(x, shape),
    gradient=lambda dy, y, x, *, shape: (_reshaped(dy, x),),
    precision="same",
    family="reshape",
    doc="x with another shape of as many elements, in row-major order; one size may be -1: what is left over.",
    samples=[
        sample((2, 3, 4), shape=(6, 4)),
        sample((6, 4), shape=(2, 3, -1)),
        sample((3, 17), shape=(17, 3)),
        sample((4, 6, 5), shape=(8, 3, 5)),
        sample((1, 5), shape=(5,)),
        sample((1,), shape=()),
        sample((), shape=(1, 1)),
        sample((0, 3), shape=(3, 0)),
        sample((0, 3), shape=(-1, 3)),
        sample((6,), shape=-1),
        sample(Ints((2, 3), -5, 5), shape=(3, 2)),
        sample(Bools((4,)), shape=(2, 2)),
    ],
)


def any_rows(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape for ``reshape`` whose first size is that of the argument, written such that it holds for any number of
    rows: -1 in its place, where the others are known."""
    return (-1, *shape[1:]) if all(isinstance(s, int) and s > 0 for s in shape[1:]) else tuple(shape)


def _info(x: te.Tensor) -> TensorStructInfo:
    return TensorStructInfo(x.shape, x.dtype)


define(
    "flatten",
    "x",
    infer=lambda x: TensorStructInfo((math.prod(known_shape("flatten", x), start=1),), x.dtype),
    te=lambda x: te_reshape(x, (dim(math.prod(x.shape, start=1)),), "flatten"),
    numpy=lambda x: np.reshape(x, (-1,)),
    gradient=lambda dy, y, x: (_reshaped(dy, x),),
    precision="same",
    family="reshape",
    doc="All elements of x in row-major order, as a tensor of rank 1.",
    samples=[sample((3, 17)), sample((5,)), sample(()), sample((0, 3))],
)


def _expanded(shape: Sequence[Dim], axis: Any) -> tuple[Dim, ...]:
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = normalize_axes("expand_dims", axis, len(shape) + count)
    kept = iter(shape)
    return tuple(1 if a in axes else next(kept) for a in range(len(shape) + count))


define(
    "expand_dims",
    "x | axis",
    infer=lambda x, *, axis: TensorStructInfo(_expanded(known_shape("expand_dims", x), axis), x.dtype),
    te=lambda x, *, axis: te_reshape(x, _expanded(x.shape, axis), "expand_dims"),
    numpy=lambda x, *, axis: np.expand_dims(x, axis),
    gradient=lambda dy, y, x, *, axis: (ops.squeeze(dy, axis),),
    precision="same",
    family="reshape",
    doc="x with axes of size 1 put in, at these positions of the result.",
    samples=[sample((3, 4), axis=1), sample((3,), axis=(0, -1)), sample((), axis=0), sample((0, 3), axis=-1)],
)


def _squeezed_axes(shape: Sequence[Dim], axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(a for a, s in enumerate(shape) if isinstance(s, int) and s == 1)
    axes = normalize_axes("squeeze", axis, len(shape))
    for a in axes:
        if not same(shape[a], 1):
            raise ShapeError(f"squeeze: axis {a} of the shape {format_shape(shape)} does not have size 1")
    return axes


def _squeezed(shape: Sequence[Dim], axis: Any) -> tuple[Dim, ...]:
    axes = _squeezed_axes(shape, axis)
    return tuple(s for a, s in enumerate(shape) if a not in axes)


define(
    "squeeze",
    "x | axis=None",
    infer=lambda x, *, axis: TensorStructInfo(_squeezed(known_shape("squeeze", x), axis), x.dtype),
    te=lambda x, *, axis: te_reshape(x, _squeezed(x.shape, axis), "squeeze"),
    numpy=lambda x, *, axis: np.squeeze(x, axis),
    gradient=lambda dy, y, x, *, axis: (ops.expand_dims(dy, _squeezed_axes(x.shape, axis)),),
    precision="same",
    family="reshape",
    doc="x without these axes, which must have size 1; without an axis, all of size 1.",
    samples=[sample((1, 3, 1)), sample((1, 3, 1), axis=-1), sample((1, 1), axis=(0, 1)), sample((1, 0)), sample(())],
)

# -- the order of axes and elements


def _permutation(axes: Any, ndim: int) -> list[int]:
    order = list(reversed(range(ndim))) if axes is None else [normalize_axis("permute_dims", a, ndim) for a in axes]
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"permute_dims: axes {tuple(axes)} is no permutation of the {ndim} axes")
    return order


def _permute_infer(x: TensorStructInfo, *, axes: Any) -> TensorStructInfo:
    shape = known_shape("permute_dims", x)
    return TensorStructInfo([shape[a] for a in _permutation(axes, len(shape))], x.dtype)


def _permute_te(x: te.Tensor, *, axes: Any) -> te.Tensor:
    order = _permutation(axes, x.ndim)
    shape = [x.shape[a] for a in order]
    return te.compute(shape, lambda *i: x[tuple(i[order.index(a)] for a in range(x.ndim))], "permute_dims")


def _permute_gradient(dy: Any, y: Any, x: Any, *, axes: Any) -> tuple[Any]:
    order = _permutation(axes, len(x.shape))
    inverse = tuple(order.index(a) for a in range(len(order)))
    return (ops.permute_dims(dy) if axes is None else ops.permute_dims(dy, inverse),)


define(
    "permute_dims",
    "x | axes=None",
    infer=_permute_infer,
    te=_permute_te,
    numpy=lambda x, *, axes: np.transpose(x, axes),
    gradient=_permute_gradient,
    precision="same",
    family="permute",
    doc="y's axis k is x's axis axes[k]; without axes, the axes are reversed.",
    samples=[
        sample((3, 17)),
        sample((2, 3, 4), axes=(1, 2, 0)),
        sample((2, 3, 4), axes=(0, -1, 1)),
        sample((5,)),
        sample(()),
        sample((0, 3), axes=(1, 0)),
    ],
)


def _flip_te(x: te.Tensor, *, axis: Any) -> te.Tensor:
    axes = normalize_axes("flip", axis, x.ndim)
    sizes = [tir.as_expr(s) for s in x.shape]
    return te.compute(
        x.shape, lambda *i: x[tuple(sizes[a] - 1 - e if a in axes else e for a, e in enumerate(i))], "flip"
    )


def _flip_infer(x: TensorStructInfo, *, axis: Any) -> TensorStructInfo:
    normalize_axes("flip", axis, len(known_shape("flip", x)))
    return x


define(
    "flip",
    "x | axis",
    infer=_flip_infer,
    te=_flip_te,
    numpy=lambda x, *, axis: np.flip(x, axis),
    gradient=lambda dy, y, x, *, axis: (ops.flip(dy, axis),),
    precision="same",
    family="permute",
    doc="x with the order along the axis (or axes) reversed.",
    samples=[sample((3, 4), axis=1), sample((2, 3), axis=(0, 1)), sample((0,), axis=0), sample((1, 17), axis=-1)],
)

# -- broadcasting and its adjoint


def sizes(shape: Any) -> tuple[Dim, ...]:
    """A shape as users write it, one size or a sequence, as a tuple."""
    return tuple(dim(s) for s in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def _broadcast_infer(x: TensorStructInfo, *, shape: Any) -> TensorStructInfo:
    own, wanted = known_shape("broadcast_to", x), sizes(shape)
    if len(own) > len(wanted) or not same_shape(broadcast_shapes("broadcast_to", own, wanted), wanted):
        raise ShapeError(f"broadcast_to: {format_shape(own)} does not broadcast to {format_shape(wanted)}")
    return TensorStructInfo(wanted, x.dtype)


def _collapse_gradient(dy: Any, y: Any, x: Any, *rest: Any, **_: Any) -> tuple[Any, ...]:
    return (ops.broadcast_to(dy, x.shape), *(None for _ in rest))


define(
    "broadcast_to",
    "x | shape",
    infer=_broadcast_infer,
    te=lambda x, *, shape: te.compute(sizes(shape), lambda *i: broadcast_index(x, i), "broadcast_to"),
    numpy=lambda x, *, shape: np.array(np.broadcast_to(x, shape)),
    gradient=lambda dy, y, x, *, shape: (ops.collapse_sum_to(dy, x.shape),),
    precision="same",
    family="broadcast",
    doc="x repeated along new leading axes and along axes of size 1, to the given shape.",
    samples=[
        sample((3, 1), shape=(2, 3, 4)),
        sample((), shape=(3,)),
        sample((17,), shape=(3, 17)),
        sample((1,), shape=(0,)),
        sample((3, 4), shape=(3, 4)),
        sample((1, 1), shape=(1, 5)),
        sample(Bools((1,)), shape=(3,)),
    ],
)


def _collapse_shape(op: str, x: TensorStructInfo, wanted: Sequence[Dim]) -> TensorStructInfo:
    own = known_shape(op, x)
    expect_dtype(op, x, "number")
    if len(wanted) > len(own) or not same_shape(broadcast_shapes(op, own, wanted), own):
        raise ShapeError(f"{op}: {format_shape(own)} is no broadcast of {format_shape(wanted)}")
    return TensorStructInfo(wanted, x.dtype)


def _repeated(own: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[int, list[int]]:
    """The number of new leading axes, and all axes along which a tensor of the wanted shape was repeated."""
    lead = len(own) - len(wanted)
    return lead, [*range(lead), *(lead + k for k, s in enumerate(wanted) if not same(s, own[lead + k]))]


def te_collapse(x: te.Tensor, shape: Sequence[Dim]) -> te.Tensor:
    """``x`` summed to a shape that broadcasts to its own."""
    lead, axes = _repeated(x.shape, shape)
    return te_cast(te_reshape(te_sum(x, axes, True), tuple(shape)) if lead else te_sum(x, axes, True), x.dtype)


def _collapse(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    _, axes = _repeated(x.shape, shape)
    return np.reshape(in_wide(lambda v: np.sum(v, axis=tuple(axes), keepdims=True, dtype=v.dtype))(x), shape)


define(
    "collapse_sum_to",
    "x | shape",
    infer=lambda x, *, shape: _collapse_shape("collapse_sum_to", x, sizes(shape)),
    te=lambda x, *, shape: te_collapse(x, sizes(shape)),
    numpy=lambda x, *, shape: _collapse(x, shape),
    gradient=_collapse_gradient,
    precision="same",
    family="broadcast",
    doc="x summed over the axes along which a tensor of the given shape is repeated when it broadcasts to x's shape:\n"
    "the adjoint of broadcast_to.",
    samples=[
        sample((2, 3, 4), shape=(3, 1)),
        sample((3,), shape=()),
        sample((3, 4), shape=(3, 4)),
        sample((0, 3), shape=(1, 3)),
        sample((5, 17), shape=(17,)),
        sample((1, 5), shape=(1, 1)),
    ],
)
define(
    "collapse_sum_like",
    "x, like",
    infer=lambda x, like: _collapse_shape("collapse_sum_like", x, known_shape("collapse_sum_like", like, "like")),
    te=lambda x, like: te_collapse(x, like.shape),
    numpy=lambda x, like: _collapse(x, like.shape),
    gradient=_collapse_gradient,
    precision="same",
    family="broadcast",
    doc="x summed to the shape of ``like``, which broadcasts to x's shape: see collapse_sum_to.",
    samples=[sample((2, 3, 4), (3, 1)), sample((3,), ()), sample((2, 5), Ints((5,), 0, 3))],
)
