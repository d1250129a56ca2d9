"""Concatenation as a tensor expression: what the op means, and what the schedule of attention's gradient looks for."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.te.tensor import Tensor, compute
from pullback.tir.expr import PrimExpr, as_expr, maximum, minimum, select


def concatenation(tensors: Sequence[Tensor], axis: int, total: int | PrimExpr) -> Tensor:
    """The tensors one after the other along an axis (≥ 0), whose sizes there are ``total`` together."""
    parts = [t for t in tensors if t.shape[axis] != 0] or [tensors[0]]

    def element(*i: PrimExpr) -> PrimExpr:
        offset: PrimExpr = as_expr(0)
        pieces = []  # of every part, its element, at an index that is valid even where another part is meant
        for t in parts:
            size = as_expr(t.shape[axis])
            local = clamp(i[axis] - offset, size) if len(parts) > 1 else i[axis]
            offset = offset + size
            pieces.append((t[(*i[:axis], local, *i[axis + 1 :])], offset))
        result: PrimExpr = pieces[-1][0]
        for value, end in reversed(pieces[:-1]):
            result = select(i[axis] < end, value, result)
        return result

    return compute((*tensors[0].shape[:axis], total, *tensors[0].shape[axis + 1 :]), element, "concat")


def clamp(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """The nearest valid index: a select reads both of its sides."""
    return maximum(minimum(index, size - 1), 0)
