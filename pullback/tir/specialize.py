"""Kernels with symbolic sizes: bound to the sizes of the arrays that they are called on.

def k(A: T.Buffer((n, 4)), B: T.Buffer((n, 4))):  for i in range(n): …     on arrays of shape (8, 4)
    →
def k(A: T.Buffer((8, 4)), B: T.Buffer((8, 4))):  for i in range(8): …
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.tir.expr import Buffer, PrimExpr, Var, as_expr
from pullback.tir.polynomial import same
from pullback.tir.stmt import PrimFunc
from pullback.tir.visitor import Mutator, Substitute, substitute, walk


def specialize(function: PrimFunc, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Any] = ()) -> PrimFunc:
    """The kernel for buffers of these shapes (one for each buffer parameter) and these scalar arguments.

    Raises ShapeError when the shapes or their number do not fit the parameters.
    """
    variables = [p for p in function.params if isinstance(p, Var)]
    if len(shapes) != len(function.buffers) or len(scalars) != len(variables):
        expected = f"{len(function.buffers)} buffers and {len(variables)} scalars"
        given = f"{len(shapes)} buffers and {len(scalars)} scalars"
        raise ShapeError(f"kernel {function.name} takes {expected}, it is called with {given}", span=function.span)
    sizes: dict[Var, PrimExpr] = {v: as_expr(s) for v, s in zip(variables, scalars, strict=True)}
    for buffer, shape in zip(function.buffers, shapes, strict=True):
        _match(function, buffer, shape, sizes)
    if not sizes:
        return function
    buffers = {b: _bound(b, sizes) for b in _buffers(function)}
    body = Substitute(sizes, buffers).stmt(function.body)
    params = tuple(buffers[p] for p in function.params if isinstance(p, Buffer))
    return PrimFunc(function.name, params, body, function.attrs, span=function.span)


def _match(function: PrimFunc, buffer: Buffer, shape: tuple[int, ...], sizes: dict[Var, PrimExpr]) -> None:
    fits = len(buffer.shape) == len(shape)
    for expected, given in zip(buffer.shape, shape, strict=False):
        if isinstance(expected, Var) and expected not in sizes:
            sizes[expected] = as_expr(given)
        fits = fits and same(substitute(as_expr(expected), sizes), given)
    if not fits:
        declared = ", ".join(str(getattr(s, "name", s)) for s in buffer.shape)
        message = f"kernel {function.name}: {buffer.name} has shape ({declared}), it is called with {shape}"
        raise ShapeError(message, span=function.span)


def _buffers(function: PrimFunc) -> set[Buffer]:
    """All buffers of the kernel, parameters and allocations."""
    found = set(function.buffers)

    class Collect(Mutator):
        def buffer(self, buffer: Buffer) -> Buffer:
            found.add(buffer)
            return buffer

    Collect().stmt(function.body)
    return found


def _bound(buffer: Buffer, sizes: dict[Var, PrimExpr]) -> Buffer:
    if not any(isinstance(n, Var) for s in buffer.shape if isinstance(s, PrimExpr) for n in walk(s)):
        return buffer
    shape = tuple(substitute(as_expr(s), sizes) for s in buffer.shape)
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.offset)
