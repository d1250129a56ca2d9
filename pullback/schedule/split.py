"""Splitting: a DAG of tensor expressions that is no single kernel becomes several, with tensors in memory between."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.schedule.cost import is_costly
from pullback.schedule.group import Group, Machine
from pullback.te.graph import body_expr, is_index_map, placeholders, read_counts, stages
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import PrimExpr
from pullback.tir.visitor import Mutator


def split(outputs: Sequence[Tensor], machine: Machine) -> list[tuple[Group, dict[Tensor, Tensor]]]:
    """Groups in order that together compute ``outputs``.

    Each comes with a map from its inputs and outputs to the tensors of the original DAG that they stand for.
    """
    order = stages(outputs)
    counts = read_counts(order)
    kept = [s for s in order if _in_memory(s, outputs, counts)]
    result = []
    for stage in kept:
        cut = _Cut({k for k in kept if k is not stage})
        copy = cut.tensor(stage)
        inputs = placeholders([copy])
        group = Group(tuple(inputs), (copy,), machine, fallback=True)
        original = {new: old for old, new in cut.stand_ins.items()}
        result.append((group, {t: original.get(t, t) for t in inputs} | {copy: stage}))
    return result


def _in_memory(stage: Tensor, outputs: Sequence[Tensor], counts: dict[Tensor, int]) -> bool:
    if stage in outputs or stage.is_reduction:
        return True
    return counts.get(stage, 0) > 1 and is_costly(stage) and not is_index_map(stage)


class _Cut(Mutator):
    """Rebuilds a stage with the stages in memory replaced by placeholders."""

    def __init__(self, cut: set[Tensor]) -> None:
        super().__init__()
        self.cut = cut
        self.stand_ins: dict[Tensor, Tensor] = {}
        self._copies: dict[Tensor, Tensor] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        if tensor.is_placeholder:
            return tensor
        if tensor in self.cut:
            if tensor not in self.stand_ins:
                self.stand_ins[tensor] = Tensor(tensor.name, tensor.shape, tensor.dtype)
            return self.stand_ins[tensor]
        if tensor not in self._copies:
            source = self.expr(body_expr(tensor))
            body = Reduce(tensor.body.kind, source, tensor.body.axes) if isinstance(tensor.body, Reduce) else source
            self._copies[tensor] = Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.axes, body)
        return self._copies[tensor]

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, TensorLoad):
            return TensorLoad(self.tensor(node.tensor), tuple(self.expr(i) for i in node.indices))
        return super()._expr(node)
