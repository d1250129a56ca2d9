"""Layouts: axes of a tensor split, joined and put in another order.

A map of indices, such as ``lambda n, c, h, w: (n, c // 4, h, w, c % 4)``, is read as *digits*. The digits of an index i
are ``i // stride % size``: those of 4 and 1 of an index below 12 have the sizes 3 and 4. A new index is a number of
digits, the most significant first. So ``index_map`` holds, for each new axis, pairs (axis, stride):

    (((0, 1),), ((1, 4),), ((2, 1),), ((3, 1),), ((1, 1),))
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op
from pullback.relax.op.family import composite, expect_int, known_shape, normalize_axis, specialize
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int
from pullback.tir import Var, as_expr
from pullback.tir.expr import Binary, IntImm, PrimExpr

_NAME = "layout_transform"
Digit = tuple[int, int]  # an axis, a stride
IndexMap = tuple[tuple[Digit, ...], ...]


def _sizes(shape: Sequence[Dim], index_map: IndexMap) -> dict[Digit, Dim]:
    """How many values each digit has, those of an axis from the most significant on."""
    sizes: dict[Digit, Dim] = {}
    for axis, size in enumerate(shape):
        strides = sorted((s for entry in index_map for a, s in entry if a == axis), reverse=True)
        if not strides and size == 1:
            continue
        divides = all(a % b == 0 and a > b for a, b in pairwise(strides))
        if not strides or strides[-1] != 1 or not divides:
            raise ShapeError(f"{_NAME}: the strides {strides} of axis {axis} do not make each index once")
        for k, stride in enumerate(strides):
            sizes[axis, stride] = strides[k - 1] // stride if k else (size if stride == 1 else _blocks(size, stride))
    return sizes


def _blocks(size: Dim, stride: int) -> Dim:
    return (size + (stride - 1)) // stride


# -- the digits of a function


class _NoDigits(Exception):
    """An index is no sum of digits."""


def _digits(index: PrimExpr, axes: dict[Var, int]) -> list[tuple[int, int, int | None, int]]:
    """An index as a sum of (axis, stride, modulus, factor): factor·(i // stride % modulus)."""
    if isinstance(index, Var) and index in axes:
        return [(axes[index], 1, None, 1)]
    if isinstance(index, IntImm) and index.value == 0:
        return []
    if isinstance(index, Binary) and index.kind == "add":
        return [*_digits(index.a, axes), *_digits(index.b, axes)]
    if isinstance(index, Binary) and index.kind in ("mul", "floordiv", "floormod"):
        a, b = (index.b, index.a) if isinstance(index.a, IntImm) else (index.a, index.b)
        found = _digits(a, axes)
        if isinstance(b, IntImm) and b.value > 0:
            if index.kind == "mul":
                return [(axis, stride, modulus, factor * b.value) for axis, stride, modulus, factor in found]
            if len(found) == 1 and found[0][3] == 1 and b is index.b:
                return [_part(*found[0][:3], index.kind, b.value)]
    raise _NoDigits


def _part(axis: int, stride: int, modulus: int | None, kind: str, by: int) -> tuple[int, int, int | None, int]:
    if modulus is not None and modulus % by:
        raise _NoDigits
    if kind == "floormod":
        return axis, stride, by, 1
    return axis, stride * by, None if modulus is None else modulus // by, 1


def read_index_map(shape: Sequence[Dim], function: Callable[..., Any]) -> IndexMap:
    """The digits of each new index that a function of the old ones returns. Raises ShapeError where they are none, or
    do not make each element once."""
    try:
        inspect.signature(function).bind(*shape)
    except TypeError:
        raise ShapeError(f"{_NAME}: index_map must take the {len(shape)} indices of x") from None
    variables = [Var(f"i{k}") for k in range(len(shape))]
    result = function(*variables)
    indices = [as_expr(i) for i in (result if isinstance(result, (tuple, list)) else (result,))]
    axes = {v: k for k, v in enumerate(variables)}
    entries = []
    for number, index in enumerate(indices):
        try:
            entries.append(sorted(_digits(index, axes), key=lambda d: -d[3]))
        except _NoDigits:
            hint = "an index is a sum of i // stride % size, each times a number"
            raise ShapeError(f"{_NAME}: index {number} of index_map cannot be read: {index}", hint=hint) from None
    index_map = tuple(tuple((axis, stride) for axis, stride, *_ in entry) for entry in entries)
    sizes = _sizes(shape, index_map)
    for number, entry in enumerate(entries):
        place: Dim = 1
        for axis, stride, modulus, factor in reversed(entry):
            size = sizes[axis, stride]
            above = any(a == axis and s > stride for a, s in sizes)
            more = modulus is None or (isinstance(size, int) and modulus > size)  # than there are: no matter at the top
            if factor != place or not (modulus == size or (more and not above)):
                raise ShapeError(f"{_NAME}: index {number} of index_map does not make each index once")
            place = place * size
    return index_map


# -- the op


class _LayoutTransform(Op):  # as users call it: the map may be a function
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (x,), attrs = self.signature.bind(self.short, args, kwargs)
        if callable(attrs["index_map"]):
            attrs["index_map"] = read_index_map(known_shape(_NAME, x.struct_info, "x"), attrs["index_map"])
        return super().__call__(x, **attrs)


def _expect(x: TensorStructInfo, *, index_map: Any, pad_value: Any) -> None:
    shape = known_shape(_NAME, x, "x")
    try:
        digits = [(axis, stride) for entry in index_map for axis, stride in entry]
    except (TypeError, ValueError):
        raise UserError(f"{_NAME}: index_map must hold pairs (axis, stride) for each axis, got {index_map!r}") from None
    for axis, stride in digits:
        normalize_axis(_NAME, axis, len(shape))
        expect_int(_NAME, "a stride", stride)
        if axis < 0 or stride < 1:
            raise ShapeError(f"{_NAME}: an axis cannot be negative, and a stride must be positive: {(axis, stride)}")
    _sizes(shape, index_map)


def _decomposed(x: Any, *, index_map: IndexMap, pad_value: Any) -> Any:
    sizes = _sizes(x.shape, index_map)
    most = [max((s for a, s in sizes if a == axis), default=1) for axis in range(len(x.shape))]
    behind = [_blocks(n, s) * s - n if s > 1 else 0 for n, s in zip(x.shape, most, strict=True)]
    if any(not isinstance(n, int) or n > 0 for n in behind):
        x = ops.nn.pad(x, tuple(w for n in behind for w in (0, n)), "constant", pad_value or 0)
    order = {digit: k for k, digit in enumerate(sizes)}
    axes = [order[axis, stride] for entry in index_map for axis, stride in entry]
    x = ops.permute_dims(ops.reshape(x, tuple(sizes.values())), axes)
    return ops.reshape(x, tuple(math.prod([sizes[axis, stride] for axis, stride in entry]) for entry in index_map))


def _transformed(x: np.ndarray, *, index_map: IndexMap, pad_value: Any) -> np.ndarray:
    sizes = _sizes(x.shape, index_map)
    shape = [math.prod([as_int(sizes[axis, stride]) for axis, stride in entry]) for entry in index_map]
    result = np.full(shape, pad_value or 0, x.dtype)
    old, new = np.indices(x.shape), []
    for entry in index_map:
        index: Any = np.zeros(x.shape, np.int64)
        for axis, stride in entry:
            size = sizes[axis, stride]
            index = index * size + old[axis] // stride % size
        new.append(index)
    result[tuple(new)] = x
    return result


specialize(
    composite(
        _NAME,
        "x | index_map, pad_value=None",
        expect=_expect,
        decompose=_decomposed,
        numpy=_transformed,
        precision="same",
        family="permute",
        doc="x in another layout. index_map is a function from the indices of an element to its new ones, such as\n"
        "lambda n, c, h, w: (n, c // 4, h, w, c % 4), or for each new axis pairs (axis, stride): the number that the\n"
        "digits i // stride % size make, where the size is that up to the next greater stride. Elements that are new\n"
        "are pad_value, or 0. Each old index must be made once.",
        samples=[
            sample((2, 8, 3), index_map=(((0, 1),), ((1, 4),), ((2, 1),), ((1, 1),))),
            sample((2, 7, 3), index_map=(((0, 1),), ((1, 4),), ((2, 1),), ((1, 1),)), pad_value=2.0),
            sample((3, 4), index_map=(((1, 1), (0, 1)),)),
            sample((5, 12), index_map=(((1, 6), (0, 1)), ((1, 1),), ((1, 2), (0, 2)))),
            sample((6,), index_map=((), ((0, 1),))),
            sample(Ints((3, 5), -5, 5), index_map=(((1, 2),), ((0, 2),), ((0, 1),), ((1, 1),)), pad_value=-1),
            sample((), index_map=()),
            sample((0, 3), index_map=(((1, 1),), ((0, 2),), ((0, 1),))),
        ],
    ),
    _LayoutTransform,
)
