"""Padding: sources that are constant outside some bounds.

select(1 <= y and y < 9 and …, value, 0)          bounds of y: 1 and 9
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.schedule.affine import affine
from pullback.schedule.contraction.problem.problem import conjuncts, reads_tensors
from pullback.te.graph import body_expr
from pullback.te.tensor import Tensor
from pullback.tir import Binary, FloatImm, IntImm, PrimExpr, Select, Var
from pullback.tir.visitor import substitute

Step = tuple[int, int]  # (s, r): place u of an axis is its index s·u + r


@dataclass(frozen=True)
class Padding:
    """A source is ``inside`` where each axis is within its bounds, first and one after the last place, and where the
    other ``conditions`` hold, in terms of places; elsewhere it is ``otherwise``, a constant."""

    inside: PrimExpr
    otherwise: PrimExpr
    bounds: Mapping[int, tuple[int, int]]
    conditions: tuple[PrimExpr, ...]

    @staticmethod
    def of(source: Tensor, steps: Sequence[Step]) -> Padding | None:
        """``steps``: of the source's axes, a stage's."""
        body = body_expr(source)
        if not isinstance(body, Select) or not isinstance(body.b, (FloatImm, IntImm)) or reads_tensors(body.condition):
            return None
        extents = {axis: int(size) for axis, size in zip(source.axes, source.shape, strict=True)}
        sizes = [at_or_after(int(size), step) for size, step in zip(source.shape, steps, strict=True)]
        places = dict(zip(source.axes, sizes, strict=True))
        bounds: dict[int, tuple[int, int]] = {}
        conditions: list[PrimExpr] = []
        for condition in conjuncts(body.condition):
            bound = _bound(condition, extents)
            if bound is None:
                condition = substitute(condition, indices(source.axes, steps))
                if not _always(condition, places):
                    conditions.append(condition)
                continue
            d = list(source.axes).index(bound[0])
            low, high = bounds.get(d, (0, sizes[d]))
            bounds[d] = max(low, at_or_after(bound[1], steps[d])), min(high, at_or_after(bound[2], steps[d]))
        return Padding(body.a, body.b, bounds, tuple(conditions))


def indices(axes: Sequence[Var], steps: Sequence[Step]) -> dict[Var, PrimExpr]:
    """The index of each axis at its place."""
    return {axis: axis * step + first for axis, (step, first) in zip(axes, steps, strict=True)}


def zero_outside(source: Tensor, d: int) -> tuple[int, int] | None:
    """The places along axis ``d`` outside of which a source is 0, if there are such."""
    if source.is_placeholder:
        return None
    found = Padding.of(source, [(1, 0)] * source.ndim)
    return found.bounds.get(d) if found is not None and getattr(found.otherwise, "value", None) == 0 else None


def at_or_after(index: int, step: tuple[int, int]) -> int:
    """The first place whose index is at least ``index``."""
    return -(-(index - step[1]) // step[0])


def _always(condition: PrimExpr, extents: Mapping[Var, int]) -> bool:
    """Whether an equation holds everywhere."""
    if not isinstance(condition, Binary) or condition.kind != "eq":
        return False
    a, b = affine(condition.a, extents), affine(condition.b, extents)
    return a is not None and b is not None and a == b


def _bound(condition: PrimExpr, extents: Mapping[Var, int]) -> tuple[Var, int, int] | None:
    """(axis, least, end) of a comparison that bounds one axis."""
    if not isinstance(condition, Binary) or condition.kind not in ("ge", "gt", "le", "lt"):
        return None
    a, b = affine(condition.a, extents), affine(condition.b, extents)
    difference = a.plus(b, -1) if a is not None and b is not None else None
    if difference is None or len(difference.terms) != 1:
        return None
    ((axis, coefficient),) = difference.terms.items()
    if coefficient != 1:
        return None
    limit = -difference.const  # axis compared with limit
    if condition.kind in ("ge", "gt"):
        return axis, limit + (condition.kind == "gt"), extents[axis]
    return axis, 0, limit + (condition.kind == "le")
