"""Splitting: a DAG of tensor expressions that is no single kernel becomes several, with tensors in memory between.

    s[n, c, y, x] = f(…)                              out[n, y, x, c] = f(…)
    out[n, y, x, c] = s[n, c, y, x]            →      total[c] = Σ out[n, y, x, c]
    total[c] = Σ s[n, c, y, x]

What an output holds, in whatever order of axes, is read there by all others: ``f`` is computed once. What pieces hand
on to one another lies in the order of the results, too (``te/orient.py``). Neighbours that a schedule takes together
stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.schedule.choose import is_one_kernel
from pullback.schedule.cost import is_costly
from pullback.schedule.group import LONGEST_ELEMENT, Group, Machine
from pullback.te.graph import body_expr, is_index_map, nodes_inlined, placeholders, read_counts, stages
from pullback.te.orient import orient
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import PrimExpr
from pullback.tir.visitor import Mutator


def split(outputs: Sequence[Tensor], machine: Machine) -> list[_Piece]:
    """Groups in order that together compute ``outputs``.

    Each comes with a map from its inputs and outputs to the tensors of the original DAG that they stand for.
    """
    turned = orient(outputs)
    order = stages(turned)
    counts = read_counts(order)
    in_memory = {s for s in order if _in_memory(s, turned, counts)}
    nodes = nodes_inlined(order, lambda stage, count: stage in in_memory or count > LONGEST_ELEMENT)
    kept = [s for s in order if s in in_memory or nodes[s] > LONGEST_ELEMENT]
    cutter = _Cutter(dict(zip(turned, outputs, strict=True)), kept, machine)
    result: list[_Piece] = []
    members: list[Tensor] = []
    for stage in kept:
        more = cutter.together([*members, stage]) if members else None
        if more is not None:
            members, result[-1] = [*members, stage], more
        else:
            members = [stage]
            result.append(cutter.piece(members, fallback=True))
    return result


_Piece = tuple[Group, dict[Tensor, Tensor]]


class _Cutter:
    """Makes groups of the stages that are kept in memory."""

    def __init__(self, outputs: Mapping[Tensor, Tensor], kept: Sequence[Tensor], machine: Machine) -> None:
        """``outputs``: what is returned -> the original one."""
        self.outputs, self.kept, self.machine = outputs, kept, machine
        self.reads = {stage: set(self._cut([stage])[0].stand_ins) for stage in kept}

    def _cut(self, members: Sequence[Tensor]) -> tuple[_Cut, list[Tensor]]:
        """The members with all others in memory, and how they are cut off."""
        cut = _Cut({k for k in self.kept if k not in members})
        return cut, [cut.tensor(stage) for stage in members]

    def piece(self, members: Sequence[Tensor], fallback: bool) -> _Piece:
        """A group of these stages. Those that nobody else reads are no outputs of it."""
        cut, copies = self._cut(members)
        others = [k for k in self.kept if k not in members]
        wanted = {
            copy: self.outputs.get(stage, stage)
            for copy, stage in zip(copies, members, strict=True)
            if stage in self.outputs or any(stage in self.reads[k] for k in others)
        }
        inputs = placeholders(list(wanted))
        original = {new: self.outputs.get(old, old) for old, new in cut.stand_ins.items()}
        group = Group(tuple(inputs), tuple(wanted), self.machine, fallback=fallback)
        return group, {t: original.get(t, t) for t in inputs} | wanted

    def together(self, members: Sequence[Tensor]) -> _Piece | None:
        """A group of these stages, if a schedule takes it."""
        found = self.piece(members, fallback=False)
        return found if is_one_kernel(found[0]) else None


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
