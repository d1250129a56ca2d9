"""Products of matrices and tensors."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.frontend.keras.table import KERAS, Call


@KERAS.register("ops.Matmul")
def matmul(c: Call, x1: Any, x2: Any) -> Any:
    return op.matmul(c.cast(x1), c.cast(x2))


@KERAS.register("ops.Dot")
def dot(c: Call, x1: Any, x2: Any) -> Any:
    x, y = c.cast(x1), c.cast(x2)
    if not x.shape or not y.shape:
        return x * y
    if len(y.shape) <= 2:
        return op.matmul(x, y)
    return op.tensordot(x, y, [[-1], [-2]])


@KERAS.register("ops.Tensordot")
def tensordot(c: Call, x1: Any, x2: Any) -> Any:
    axes = c.axes
    pairs = axes if isinstance(axes, int) else [[a] if isinstance(a, int) else list(a) for a in axes]
    return op.tensordot(c.cast(x1), c.cast(x2), pairs)


@KERAS.register("ops.Einsum")
def einsum(c: Call, *operands: Any) -> Any:
    return op.einsum([c.cast(x) for x in operands], c.subscripts.replace(" ", ""))


@KERAS.register("ops.Outer")
def outer(c: Call, x1: Any, x2: Any) -> Any:
    return op.outer(op.flatten(c.cast(x1)), op.flatten(c.cast(x2)))


@KERAS.register("ops.Inner")
def inner(c: Call, x1: Any, x2: Any) -> Any:
    x, y = c.cast(x1), c.cast(x2)
    return x * y if not x.shape or not y.shape else op.tensordot(x, y, [[-1], [-1]])


@KERAS.register("ops.Vdot")
def vdot(c: Call, x1: Any, x2: Any) -> Any:
    return op.dot(op.flatten(c.cast(x1)), op.flatten(c.cast(x2)))


@KERAS.register("ops.Cross")
def cross(c: Call, x1: Any, x2: Any) -> Any:
    x, y = c.cast(x1), c.cast(x2)
    if len({c.axisa, c.axisb, c.axisc}) > 1:
        raise UserError("a cross product of different axes is not converted", hint="move them with keras.ops.moveaxis")
    axis = c.axisa
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise UserError("a cross product is that of vectors of 3 numbers")
    return op.roll(x, -1, axis) * op.roll(y, 1, axis) - op.roll(x, 1, axis) * op.roll(y, -1, axis)


@KERAS.register("ops.Trace")
def trace(c: Call, x: Any) -> Any:
    return c.cast(op.sum(op.diagonal(x, c.offset, c.axis1, c.axis2), -1))


@KERAS.register("ops.CDist")
def cdist(c: Call, x: Any, y: Any) -> Any:
    difference = op.expand_dims(c.cast(x), -2) - op.expand_dims(c.cast(y), -3)
    return op.norm(difference, ord=2.0, axis=-1)
