"""Strides: how far apart in memory the elements lie that an access touches as a loop variable steps.

``x[n, y, c]`` of shape (N, Y, C) has stride Y·C along n, C along y and 1 along c. Loops are ordered by these, not by
the order in which a tensor expression names its axes: what is NCHW there may be NHWC in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pullback.tir import Binary, BufferLoad, BufferStore, IntImm, PrimExpr, Var
from pullback.tir.visitor import walk

Access = BufferLoad | BufferStore


def strides(access: Access) -> Mapping[Var, int | None] | None:
    """Elements per step of each variable that has a part in the place: None where they are not the same everywhere.
    None for all where a size is not known."""
    total: dict[Var, int | None] = {}
    step = 1
    for index, size in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
        if not isinstance(size, int):
            return None
        total = _sum(total, coefficients(index), step)
        step *= size
    return total


def coefficients(expr: PrimExpr) -> dict[Var, int | None]:
    """For each variable v of the expression the c where it is c · v + (something without v); None where it is not of
    this form."""
    if isinstance(expr, Var):
        return {expr: 1}
    if isinstance(expr, Binary) and expr.kind in ("add", "sub"):
        return _sum(coefficients(expr.a), coefficients(expr.b), 1 if expr.kind == "add" else -1)
    if isinstance(expr, Binary) and expr.kind == "mul":
        for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(factor, IntImm):
                return _sum({}, coefficients(other), factor.value)
    return {n: None for n in walk(expr) if isinstance(n, Var)}


def _sum(a: dict[Var, int | None], b: Mapping[Var, int | None], factor: int) -> dict[Var, int | None]:
    """``a + factor · b``."""
    result = dict(a)
    for v, n in b.items():
        before = a.get(v, 0)
        result[v] = None if n is None or before is None else before + factor * n
    return result


def contiguity(accesses: Iterable[Access], axes: Sequence[Var], extents: Sequence[int]) -> dict[Var, int]:
    """How many elements are touched by accesses that are contiguous along each axis: the best one to vectorize has the
    most."""
    score = dict.fromkeys(axes, 0)
    for access in accesses:
        if (steps := strides(access)) is None:
            continue
        touched = math.prod(e for v, e in zip(axes, extents, strict=True) if steps.get(v, 0) != 0)
        for v in axes:
            if steps.get(v) == 1:
                score[v] += touched
    return score


def outermost_first(accesses: Sequence[Access], axes: Sequence[Var]) -> list[Var]:
    """The axes by falling stride of any access; where that says nothing, in the order given."""
    steps = [s for s in map(strides, accesses) if s is not None]
    reach = {v: max((abs(s.get(v) or 0) for s in steps), default=0) for v in axes}
    return sorted(axes, key=lambda v: -reach[v])
