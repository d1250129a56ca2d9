"""Attention: the tensor expressions of ``te/attention.py``, forward and backward, each as one kernel.

A group is attention when it computes what those expressions compute, stage by stage, on the operands found in it; index
maps (transposes, slices) may precede the operands. The loops stand in ``attention_loops.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.ir.node import structural_equal
from pullback.schedule.attention_loops import BackwardLoops, ForwardLoops
from pullback.schedule.group import Group
from pullback.te.attention import Attention
from pullback.te.concatenation import concatenation
from pullback.te.graph import is_index_map
from pullback.te.naive import naive_kernel
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import PrimExpr, PrimFunc, Var
from pullback.tir.description import Description
from pullback.tir.expr import Binary, Cast, FloatImm, IntImm, Select
from pullback.tir.static import static


@dataclass(frozen=True, eq=False)
class AttentionForward:
    """The group is ``Attention.forward``.

        x = scale · query @ keyᵀ + bias             for task in parallel(batch · heads · row blocks):
        out = softmax(x) @ value             →          for block of keys: p = exp(…); context += p @ value
                                                        out = context / Σ p

    Checks: query, key and value have four axes of known sizes, a block's rows of scores and values fit local memory,
    and all stages are those of ``Attention.forward``: nothing else reads the scores.
    """

    loops: ForwardLoops

    @staticmethod
    def recognize(group: Group) -> AttentionForward | None:
        products = _products(group)
        if len(group.outputs) != 1 or len(group.reductions) != 4 or len(products) != 2:
            return None
        attention = _attention(group, products[0], value=products[1][1])
        if attention is None or not _computes(group, [attention.forward()]):
            return None
        loops = ForwardLoops(group, attention)
        return AttentionForward(loops) if loops.fits() else None

    def lower(self, name: str) -> PrimFunc:
        return self.loops.group.function(name, self.loops.body())

    def describe(self) -> Description:
        return self.loops.describe("attention")


@dataclass(frozen=True, eq=False)
class AttentionBackward:
    """The group is ``Attention.backward``; its results may be the parts of one.

        dquery, dkey, dvalue                 →      for task in parallel(batch · heads · parts of the rows):
        of attention, dy and out                        for row block: p anew; dx; dquery = …; dkey += …; dvalue += …

    Checks: as of AttentionForward; the results are the three adjoints, or one tensor in which they lie one after the
    other.
    """

    loops: BackwardLoops

    @staticmethod
    def recognize(group: Group) -> AttentionBackward | None:
        products = _products(group)
        if len(group.outputs) not in (1, 3) or len(group.reductions) != 8 or len(products) != 6:
            return None
        (value, _), (dy, out) = products[1], products[2]
        attention = _attention(group, products[0], value)
        if attention is None or not _are_operands(dy, out) or not _have_rank_four(dy, out):
            return None
        results: Sequence[Tensor] = attention.backward(dy, out)
        axis = _joined_axis(group.outputs[0], results) if len(group.outputs) == 1 else None
        if axis is not None:
            results = [concatenation(results, axis, group.outputs[0].shape[axis])]
        if len(group.outputs) != len(results) or not _computes(group, results):
            return None
        loops = BackwardLoops(group, attention, dy, out, axis)
        return AttentionBackward(loops) if loops.fits() else None

    def lower(self, name: str) -> PrimFunc:
        return self.loops.group.function(name, self.loops.body())

    def describe(self) -> Description:
        return self.loops.describe("attention backward")


def _joined_axis(whole: Tensor, parts: Sequence[Tensor]) -> int | None:
    """The axis along which ``whole`` may be the parts one after the other."""
    if any(t.ndim != whole.ndim for t in parts):
        return None
    for axis, size in enumerate(whole.shape):
        alike = {(*t.shape[:axis], *t.shape[axis + 1 :]) for t in (whole, *parts)}
        if len(alike) == 1 and sum(static([t.shape[axis] for t in parts])) == size:
            return axis
    return None


def _products(group: Group) -> list[tuple[Tensor, Tensor]]:
    """The factors of every reduction that is Σ a·b of two tensors, perhaps cast, in the order of the stages."""
    found = []
    for stage in group.reductions:
        match stage.body:
            case Reduce("sum", Binary("mul", a, b), _):
                left, right = _tensor(a), _tensor(b)
                if left is not None and right is not None:
                    found.append((left, right))
    return found


def _tensor(factor: PrimExpr) -> Tensor | None:
    match factor:
        case TensorLoad(tensor, _) | Cast(_, TensorLoad(tensor, _)):
            return tensor
    return None


def _attention(group: Group, operands: tuple[Tensor, Tensor], value: Tensor) -> Attention | None:
    """The operands and options that the group's logits show, if it is attention at all."""
    query, key = operands
    scores = group.reductions[0]
    readers = group.readers.get(scores, [])
    if not _have_rank_four(query, key, value):  # over a batch of another op, say
        return None
    if len(readers) != 1 or not all(isinstance(s, int) and s > 0 for t in (query, key, value) for s in t.shape):
        return None
    x, offset, bias = readers[0].body, None, None
    match x:
        case Select(Binary("le", _, limit), masked, FloatImm()):
            x, offset = masked, _offset(limit)
    match x:
        case Binary("add", scaled, added):
            x, bias = scaled, _tensor(added)
    match x:
        case Binary("mul", TensorLoad(), FloatImm() as scale) if _are_operands(query, key, value):
            if bias is None or (bias.ndim <= 4 and (bias.is_placeholder or is_index_map(bias))):
                return Attention(query, key, value, bias, scale, offset, scores.dtype)
    return None


def _offset(limit: PrimExpr) -> int | None:
    match limit:
        case Var():
            return 0
        case Binary("add", Var(), IntImm(value)):
            return value
    return None


def _have_rank_four(*tensors: Tensor) -> bool:
    return all(t.ndim == 4 for t in tensors)


def _are_operands(*tensors: Tensor) -> bool:
    """Whether each is an input, or moves elements of one whose last axis stays the last: it is read by vectors."""
    return all(t.is_placeholder or _keeps_last_axis(t) for t in tensors)


def _keeps_last_axis(t: Tensor) -> bool:
    match t.body:
        case TensorLoad(source, (*_, Var() as last)) | TensorLoad(source, (*_, Binary("add", Var() as last, IntImm()))):
            return last is t.axes[-1] and is_index_map(t) and _are_operands(source)
    return False


def _computes(group: Group, outputs: Sequence[Tensor]) -> bool:
    """Whether the group's outputs have the same definitions as these, on the same operands."""
    ours, theirs = (naive_kernel("kernel", group.inputs, o) for o in (group.outputs, outputs))
    return structural_equal(ours, theirs)
