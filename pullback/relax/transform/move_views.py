"""MoveViews: a view of a part is written as a part of a view, and a concatenation of views as a view of one.

    q, k = R.split(x, 2, axis=1)                     xs = R.reshape(x, (n, 12, 64))
    qs = R.reshape(q, (n, 6, 64))              →     qs = R.strided_slice(xs, [1], [0], [6])
    ks = R.reshape(k, (n, 6, 64))                    ks = R.strided_slice(xs, [1], [6], [12])

    R.concat([R.reshape(dq, (n, 384)), …], 1)  →     R.reshape(R.concat([dq, …], 1), (n, 768))

A view is where fusion ends. Now that it stands on the other side of the part, the part fuses with its reader, and the
concatenation with what computes its pieces, so that attention reads queries where the product left them, and no piece
is copied. It is done where what goes into the view is in memory in any case.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Call, Expr, Function, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import TensorStructInfo, as_tensor, as_tuple
from pullback.relax.transform.compose import contracts, is_view
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings

Shape = tuple[int, ...]


@dataclass(frozen=True)
class MoveViews(FunctionPass):
    """Split becomes slices; views change places with slices and concatenations.

    Checks: the part is a whole number of steps along one axis of the view, and what goes into the view is in memory in
    any case. No element changes.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        if not any(is_op(b.value, name) for b in function.bindings for name in ("split", "strided_slice", "concat")):
            return function
        return remove_dead_bindings(_Move(function).function(function))


@dataclass(frozen=True)
class _Part:
    """``source`` from ``begin`` to ``end`` along ``axis``."""

    source: Expr
    axis: int
    begin: int
    end: int

    @property
    def call(self) -> Expr:
        return Op.get("strided_slice")(self.source, [self.axis], [self.begin], [self.end])


class _Move(ExprMutator):
    def __init__(self, function: Function) -> None:
        super().__init__()
        values = [*(binding.value for binding in function.bindings), function.body.body]
        self.reads = Counter(var for value in values for var in used_vars(value))  # of the old function's variables
        self.once: set[Expr] = set()  # new variables that one value reads

    def bind(self, var: Var, value: Expr) -> None:
        super().bind(var, value)
        new = self.env[var]
        if isinstance(new, Var) and self.reads[var] == 1:
            self.once.add(new)

    def rewrite_binding(self, binding: Binding) -> None:
        part = self.item(binding.value)
        if part is None:
            super().rewrite_binding(binding)
            return
        if self.reads[binding.value.tuple_value] > 1:
            self.once.discard(part.source)  # several parts read it
        self.bind(binding.var, part.call)

    def rewrite_call(self, call: Call) -> Expr:
        if is_op(call, "concat"):
            return self.concatenation(call)
        if not is_view(call) or not isinstance(call.args[0], Var):
            return call
        part = self.part(self.builder.lookup(call.args[0]))
        if part is None or not self.in_memory(part):
            return call
        moved = view_of_part(part, _shape(call))
        if moved is None:
            return call
        shape, axis, begin, end = moved
        return _Part(self.builder.emit(Op.get("reshape")(part.source, shape)), axis, begin, end).call

    # -- parts

    def item(self, expr: Any) -> _Part | None:
        """The part that an item of a split is."""
        if not isinstance(expr, TupleGetItem):
            return None
        split: Any = self.builder.lookup(self.expr(expr.tuple_value))
        if not is_op(split, "split") or not _is_static(split.args[0]):
            return None
        source = split.args[0]
        axis = split.attrs["axis"] % as_tensor(source.struct_info).ndim
        sizes = [as_tensor(field).sizes[axis] for field in as_tuple(split.struct_info).fields]
        begin = sum(sizes[: expr.index])
        return _Part(source, axis, begin, begin + sizes[expr.index])

    def part(self, value: Any) -> _Part | None:
        """What a slice of one axis takes."""
        if not is_op(value, "strided_slice") or not _is_static(value.args[0]) or len(value.attrs["axes"]) != 1:
            return None
        if (value.attrs["strides"] or (1,))[0] != 1:
            return None
        source, size = value.args[0], value.args[0].shape
        axis = value.attrs["axes"][0] % len(size)
        run = range(size[axis])[value.attrs["begin"][0] : value.attrs["end"][0]]
        return _Part(source, axis, run.start, run.stop) if len(run) else None

    def in_memory(self, part: _Part) -> bool:
        """Whether the source is in memory, however its parts are read."""
        if not isinstance(part.source, Var) or part.source not in self.once:
            return True
        return self.is_made_whole(part.source)

    def is_made_whole(self, source: Expr) -> bool:
        """Whether the value is a parameter, or comes from an op that fuses with nothing of what moves elements."""
        value = self.builder.lookup(source) if isinstance(source, Var) else source
        return value is None or isinstance(value, TupleGetItem) or is_view(value) or contracts(value)

    # -- concatenations

    def concatenation(self, call: Call) -> Expr:
        """A view of the concatenation of what the pieces are views of."""
        views: list[Any] = [
            self.builder.lookup(p) if isinstance(p, Var) and p in self.once else None for p in call.args
        ]
        if not all(is_view(v) and _is_static(v.args[0]) and _is_static(v) for v in views):
            return call
        sources = [v.args[0] for v in views]
        axis = joined_axis([_shape(s) for s in sources], [_shape(v) for v in views], call.attrs["axis"])
        if axis is None or not all(map(self.is_made_whole, sources)):
            return call
        whole = self.builder.emit(Op.get("concat")(sources, axis))
        return Op.get("reshape")(whole, _shape(call))


def _is_static(expr: Any) -> bool:
    return isinstance(expr.struct_info, TensorStructInfo) and expr.struct_info.is_static


def _shape(expr: Any) -> Shape:
    return expr.struct_info.shape


def view_of_part(part: _Part, shape: Shape) -> tuple[Shape, int, int, int] | None:
    """A part viewed in ``shape``, as a part of its source in another shape: that, the axis, its begin and its end.

    All elements before the part's axis are those before the new axis p; then the source has ``whole`` elements for
    each of them, ``inner`` in a step along p.
    """
    old = _shape(part.source)
    before, step = math.prod(old[: part.axis]), math.prod(old[part.axis + 1 :])
    begin, end, whole = part.begin * step, part.end * step, old[part.axis] * step
    for p, size in enumerate(shape):
        inner = math.prod(shape[p + 1 :])
        is_here = math.prod(shape[:p]) == before and inner and size * inner == end - begin
        if is_here and begin % inner == 0 and whole % inner == 0:
            return (*shape[:p], whole // inner, *shape[p + 1 :]), p, begin // inner, end // inner
    return None


def joined_axis(sources: Sequence[Shape], views: Sequence[Shape], axis: int) -> int | None:
    """The axis along which ``sources`` are concatenated where their ``views`` are along ``axis``."""
    before = math.prod(views[0][:axis] if axis >= 0 else views[0][: len(views[0]) + axis])
    first = sources[0]
    for p in range(len(first)):
        if math.prod(first[:p]) == before and len({(s[:p], s[p + 1 :]) for s in sources}) == 1:
            return p
    return None
