"""Reads of a user's tensor expressions that may lie beside their tensors: read inside, and a condition says which were.

    x[idx[i]]          →          x[max(min(idx[i], 3), 0)]          where 0 <= idx[i] and idx[i] < 4

What is proven by the ranges of the axes stays as it is, as in kernels (``tir/checked.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.depth import deep
from pullback.te.graph import body_expr, stages
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir.checked import Place, clamped, is_empty, is_inside, needed, outside
from pullback.tir.expr import PrimExpr, const
from pullback.tir.ranges import Known
from pullback.tir.visitor import Mutator


@deep
def checked(outputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The same tensors with reads that lie inside, and bool tensors that all hold where none had to be moved."""
    new: dict[Tensor, Tensor] = {}
    conditions: list[Tensor] = []
    for stage in stages(outputs):
        reduced = stage.body.axes if isinstance(stage.body, Reduce) else ()
        axes = (*stage.axes, *(a.var for a in reduced))
        shape = (*stage.shape, *(a.extent for a in reduced))
        known = Known()
        for axis, size in zip(axes, shape, strict=True):
            known = known.size(size).loop(axis, size)
        source = body_expr(stage)
        places = needed((source,), known)
        reads = _Reads(places, known, new)
        body = reads.expr(source)
        if body is not source:
            element = Reduce(stage.body.kind, body, reduced) if isinstance(stage.body, Reduce) else body
            new[stage] = Tensor(stage.name, stage.shape, stage.dtype, stage.axes, element)
        condition = reads.condition()
        if condition is not None:
            conditions.append(Tensor("inside", shape, "bool", axes, condition))
    return [new.get(t, t) for t in outputs], conditions


class _Reads(Mutator):
    """Reads of the new tensors, at the nearest valid indices."""

    def __init__(self, places: Mapping[int, Place], known: Known, new: Mapping[Tensor, Tensor]) -> None:
        super().__init__()
        self.places, self.known, self.new = places, known, new
        self.found: list[tuple[TensorLoad, Sequence[int]]] = []

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if not isinstance(node, TensorLoad):
            return super()._expr(node)
        tensor, indices = self.new.get(node.tensor, node.tensor), tuple(map(self.expr, node.indices))
        axes = outside(node.indices, tensor.shape, self.known)
        if axes:  # code reads both sides of a select
            unknown = outside(node.indices, tensor.shape, self.places[id(node)].known)
            if unknown:
                self.found.append((node, unknown))
            if is_empty(tensor.shape):
                return const(0, tensor.dtype)
            indices = clamped(indices, tensor.shape, axes)
        is_same = tensor is node.tensor and all(a is b for a, b in zip(indices, node.indices, strict=True))
        return node if is_same else TensorLoad(tensor, indices)

    def condition(self) -> PrimExpr | None:
        """Whether all that is read lies inside; None where that is known."""
        result: PrimExpr | None = None
        for load, axes in self.found:
            inside = is_inside([self.expr(i) for i in load.indices], load.tensor.shape, axes)
            inside = self.places[id(load)].implies(inside, self)
            result = inside if result is None else result & inside
        return result
