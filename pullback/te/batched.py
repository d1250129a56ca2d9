"""Tensor expressions over one more axis: each element of a batch is what the expression gives for that element.

y = compute((n,), lambda i: x[i] * w[i])     →     y = compute((b, n), lambda k, i: x[k, i] * w[i])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.te.graph import body_expr, stages
from pullback.te.tensor import Reduce, Tensor, TensorLoad, compute
from pullback.tir.expr import PrimExpr, Var
from pullback.tir.visitor import Mutator


def batched(outputs: Sequence[Tensor], mapped: Mapping[Tensor, Tensor], size: int | PrimExpr) -> list[Tensor]:
    """The outputs with an axis of ``size`` before their own, where each tensor of ``mapped`` stands for one element of
    another, which has that axis. What depends on none of them is computed once."""
    found = dict(mapped)
    for stage in stages(outputs):
        if any(load.tensor in found for load in stage.loads):
            found[stage] = _batched(stage, found, size)
    return [_copied(found[t]) if t in mapped else found[t] if t in found else _repeated(t, size) for t in outputs]


def _batched(stage: Tensor, found: Mapping[Tensor, Tensor], size: int | PrimExpr) -> Tensor:
    index = Var("batch")
    element = _AtIndex(found, index).expr(body_expr(stage))
    body = Reduce(stage.body.kind, element, stage.body.axes) if isinstance(stage.body, Reduce) else element
    return Tensor(stage.name, (size, *stage.shape), stage.dtype, (index, *stage.axes), body)


def _copied(tensor: Tensor) -> Tensor:
    """An input that is an output, too."""
    return compute(tensor.shape, lambda *place: tensor[place], tensor.name)


def _repeated(tensor: Tensor, size: int | PrimExpr) -> Tensor:
    return compute((size, *tensor.shape), lambda *place: tensor[place[1:]], tensor.name)


class _AtIndex(Mutator):
    """Reads of what has the axis, at one index of it."""

    def __init__(self, found: Mapping[Tensor, Tensor], index: Var) -> None:
        super().__init__()
        self.found, self.index = found, index

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if not isinstance(node, TensorLoad):
            return super()._expr(node)
        indices = tuple(self.expr(i) for i in node.indices)
        tensor = self.found.get(node.tensor)
        return TensorLoad(node.tensor, indices) if tensor is None else TensorLoad(tensor, (self.index, *indices))
