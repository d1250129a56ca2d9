"""Strides: how far apart in memory the elements lie that an access touches as a loop variable steps.

``x[n, y, c]`` of shape (N, Y, C) has stride Y·C along n, C along y and 1 along c. Loops are ordered by these, not by
the order in which a tensor expression names its axes: what is NCHW there may be NHWC in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pullback.tir import BufferLoad, BufferStore, IntImm, PrimExpr, Var
from pullback.tir.visitor import walk

Access = BufferLoad | BufferStore


def stride(access: Access, var: Var) -> int | None:
    """Elements per step of ``var``: 0 where it has no part; None where it is not known, or not the same everywhere."""
    total, step = 0, 1
    for index, size in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
        factor = coefficient(index, var)
        if factor is None or not isinstance(size, int):
            return None
        total, step = total + factor * step, step * size
    return total


def coefficient(expr: PrimExpr, var: Var) -> int | None:
    """c where ``expr`` is c · var + (something without var); None where it is not of this form."""
    if expr is var:
        return 1
    kind = getattr(expr, "kind", None)
    if kind in ("add", "sub"):
        a, b = coefficient(expr.a, var), coefficient(expr.b, var)  # type: ignore[attr-defined]
        return None if a is None or b is None else a + b if kind == "add" else a - b
    if kind == "mul":
        for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):  # type: ignore[attr-defined]
            if isinstance(factor, IntImm):
                inner = coefficient(other, var)
                return None if inner is None else inner * factor.value
    return None if any(n is var for n in walk(expr)) else 0


def contiguity(accesses: Iterable[Access], axes: Sequence[Var], extents: Sequence[int]) -> dict[Var, int]:
    """How many elements are touched by accesses that are contiguous along each axis: the best one to vectorize has the
    most."""
    score = dict.fromkeys(axes, 0)
    for access in accesses:
        strides = {v: stride(access, v) for v in axes}
        touched = math.prod(e for v, e in zip(axes, extents, strict=True) if strides[v] != 0)
        for v in axes:
            if strides[v] == 1:
                score[v] += touched
    return score


def outermost_first(accesses: Sequence[Access], axes: Sequence[Var]) -> list[Var]:
    """The axes by falling stride of any access; where that says nothing, in the order given."""
    reach = {v: max((abs(stride(a, v) or 0) for a in accesses), default=0) for v in axes}
    return sorted(axes, key=lambda v: -reach[v])
