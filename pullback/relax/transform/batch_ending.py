"""Loops of a batch whose elements end at different steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.relax.boxes import is_handle
from pullback.relax.expr import Expr, Function, Var, const
from pullback.relax.op.batching import with_axis
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import Dim, TensorStructInfo
from pullback.relax.transform.batch_values import Value, like, zero

if TYPE_CHECKING:
    from pullback.relax.transform.vmap import Sweep


class Ending:
    """Elements that end at different steps, in a loop's body or condition: carries before its own say which still go
    on, how many steps each has taken and, where each has a count, how many it is to take."""

    def __init__(
        self, size: Dim, counted: bool, condition: Function | None, moves: Sequence[bool], fixed: Sequence[bool]
    ) -> None:
        self.size, self.condition, self.moves, self.fixed = size, condition, list(moves), list(fixed)
        number = TensorStructInfo((size,), "int64")
        self.alive, self.taken = Var("going", TensorStructInfo((size,), "bool")), Var("taken", number)
        self.counts = Var("counts", number) if counted else None

    @property
    def params(self) -> list[Var]:
        return [self.alive, self.taken, *([] if self.counts is None else [self.counts])]

    def begin(self, counts: Expr | None) -> list[Expr]:
        true = ops.full((self.size,), const(True, "bool"), "bool")
        zeros = ops.zeros((self.size,), "int64")
        return [true, zeros, *([] if self.counts is None else [counts])]

    def going(self, step: Expr, answer: Expr | None) -> Expr:
        """Which elements take the step."""
        found: Expr = self.alive if answer is None else ops.logical_and(self.alive, answer)
        return found if self.counts is None else ops.logical_and(found, ops.less(step, self.counts))

    def step(self, sweep: Sweep, params: Sequence[Var], value: Value) -> list[list[Expr]]:
        """The carries and ys after a step that only some take; the others keep theirs, and their ys are zeros."""
        after, ys = value
        before = params[1 : 1 + len(after)]
        answer = None
        if self.condition is not None:
            constant = params[len(params) - len(self.fixed) :]
            flags = [False, *self.moves, *self.fixed]
            values = list(zip((params[0], *before, *constant), flags, strict=True))
            found, has = sweep.over(self.condition, values)
            answer = with_axis(found, has, self.size)
        going = sweep.builder.emit(self.going(params[0], answer), "going")
        alive = self.alive if answer is None else sweep.builder.emit(ops.logical_and(self.alive, answer))
        taken = ops.add(self.taken, ops.astype(going, "int64"))
        new = [self.kept(going, v, b) for b, v in zip(before, after, strict=True)]
        return [[alive, taken, *self.params[2:], *new], [self.kept(going, y) for y in ys]]

    def kept(self, going: Expr, value: tuple[Expr, bool], other: Expr | None = None) -> Expr:
        """A value where an element takes the step, else another one, or zeros. Boxes are of all elements: one that did
        not take the step will not ask for what is in them."""
        if is_handle(value[0].struct_info):
            return value[0]
        whole = with_axis(*value, self.size)
        return ops.where(like(going, whole), whole, zero(whole) if other is None else other)
