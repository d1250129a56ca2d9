"""Ops that are loops: what no tensor expression can say, such as a running sum or a sort, is written as loops.

The op's rule ``kernel(inputs, outputs, **attrs)`` gets a buffer for each tensor and returns the statement that fills
the outputs. Such loops mostly go along one axis, for each of the other indices; :class:`Lines` finds the way there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pullback import te
from pullback.ir.op import Op
from pullback.relax.expr import Call
from pullback.relax.struct_info import Dim, StructInfo, TensorStructInfo, TupleStructInfo
from pullback.te.naive import naive_kernel
from pullback.tir import Buffer, PrimExpr, PrimFunc, Stmt, as_expr, loop

_WORTH_THREADS = 1 << 14  # elements of a kernel


def kernel_of(call: Call, name: str) -> PrimFunc:
    """The kernel of a call of an op with that rule: parameters are its arguments, then its results."""
    op = _op(call)
    assert op.kernel is not None
    infos = call.struct_info.fields if isinstance(call.struct_info, TupleStructInfo) else (call.struct_info,)
    names = op.signature.tensors
    if op.signature.variadic:
        names = tuple(f"{names[0]}{k}" for k in range(len(call.args)))
    inputs = [_buffer(n, a.struct_info) for n, a in zip(names, call.args, strict=True)]
    outputs = [_buffer("out" if len(infos) == 1 else f"out{k}", info) for k, info in enumerate(infos)]
    return PrimFunc(name, (*inputs, *outputs), op.kernel(inputs, outputs, **call.attrs))


def loops_of(call: Call, name: str) -> PrimFunc:
    """The op's own kernel, or the plain loops of its tensor expression."""
    op = _op(call)
    if op.te is None:
        return kernel_of(call, name)
    names = op.signature.tensors * max(1, len(call.args))
    infos = [_tensor(a.struct_info) for a in call.args]
    tensors = [te.placeholder(i.sizes, i.dtype, n) for i, n in zip(infos, names, strict=False)]
    result = op.te(*tensors, **call.attrs)
    return naive_kernel(name, tensors, list(result) if isinstance(result, (tuple, list)) else [result])


def _op(call: Call) -> Op:
    assert isinstance(call.op, Op)
    return call.op


def _tensor(info: StructInfo) -> TensorStructInfo:
    assert isinstance(info, TensorStructInfo)
    return info


def _buffer(name: str, info: StructInfo) -> Buffer:
    return Buffer(name, _tensor(info).sizes, _tensor(info).dtype)


@dataclass(frozen=True)
class Lines:
    """The lines of a tensor along an axis, one for each combination of the other indices."""

    shape: tuple[Dim, ...]
    axis: int

    @property
    def length(self) -> Dim:
        return self.shape[self.axis]

    @property
    def count(self) -> Dim:
        return math.prod(n for a, n in enumerate(self.shape) if a != self.axis)

    def place(self, line: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
        """The index of element ``k`` of a line."""
        found: list[PrimExpr] = [k] * len(self.shape)
        for axis in reversed([a for a in range(len(self.shape)) if a != self.axis]):
            found[axis] = line % self.shape[axis]
            line = line // self.shape[axis]
        return tuple(found)

    def each(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """``body(line)`` for all lines."""
        total = self.count * self.length
        large = not isinstance(total, int) or total > _WORTH_THREADS
        return loop("line", as_expr(self.count), body, "parallel" if large else "serial")


def reversed_place(lines: Lines, k: PrimExpr, backwards: bool) -> PrimExpr:
    """Place ``k`` counted from the front, or from the back."""
    return as_expr(lines.length) - 1 - k if backwards else k


def has_kernel(expr: object) -> bool:
    """Whether the value is a call of an op that is written as a kernel."""
    return isinstance(expr, Call) and getattr(expr.op, "kernel", None) is not None
