"""Tail calls: a body in tail position of a recursive function gives what the next step of a loop needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import GlobalVar
from pullback.relax.control import branch
from pullback.relax.expr import Call, Expr, If, SeqExpr, Tuple, Var, const
from pullback.relax.struct_info import format_info, same_info
from pullback.relax.transform.closed_form import Known, closed, items_of, leaves_of

if TYPE_CHECKING:
    from pullback.relax.transform.inline_functions import Inliner


@dataclass(frozen=True)
class Tail:
    """A body in tail position of a recursive function: it gives (arguments of the next call, result, whether it is
    done)."""

    known: Known
    given: Sequence[Any]  # the arguments of the first call
    arguments: Sequence[Expr]  # where there is no other call
    results: Sequence[Expr]  # where there is one
    ends: list[Expr] = field(default_factory=list)  # what is returned without another call

    def of(self, inliner: Inliner, body: SeqExpr) -> Tuple:
        *before, last = list(body.bindings) or [None]
        is_last = last is not None and isinstance(body.body, Var) and body.body is last.var
        if not is_last or not isinstance(last.value, (Call, If)):
            return self.end(inliner.body(body))
        value = last.value
        if isinstance(value, If):
            self.emit(inliner, before)
            condition = inliner.expr(value.condition)
            branches = (value.then, value.otherwise)
            bodies = [inliner.region([], lambda b=b: self.of(inliner.inside(), b)) for b in branches]
            (then, otherwise), operands = closed(bodies, inliner.builder)
            chosen = inliner.builder.emit(branch(condition, operands, then, otherwise), "chosen")
            return Tuple(tuple(inliner.builder.emit(item) for item in items_of(chosen)))
        if not isinstance(value.op, (GlobalVar, Expr)):
            return self.end(inliner.body(body))
        self.emit(inliner, before)
        callee = inliner.callee(value.op)
        arguments = [inliner.argument(a) for a in value.args]
        if callee.function is self.known.function:
            return self.next(arguments, value)
        if inliner.is_open(callee) or not inliner.calls_itself(callee):
            return self.end(inliner.call(callee, arguments, value))
        return self.of(inliner.entered(callee, arguments), callee.function.body)

    def emit(self, inliner: Inliner, bindings: Sequence[Any]) -> None:
        for binding in bindings:
            inliner.rewrite_binding(binding)

    def end(self, result: Expr) -> Tuple:
        self.ends.append(result)
        return Tuple((*self.arguments, *leaves_of(result), const(True)))

    def next(self, arguments: Sequence[Any], call: Call) -> Tuple:
        kept = []
        for first, argument in zip(self.given, arguments, strict=True):
            if not isinstance(argument, Known):
                kept += leaves_of(argument)
            elif not isinstance(first, Known) or argument.function is not first.function:
                message = f"{self.known.name} calls itself with another function"
                raise UserError(message, span=call.span, hint="a recursive function hands its functions on as they are")
        changed = [
            f"{format_info(old.struct_info)} to {format_info(new.struct_info)}"
            for old, new in zip(self.arguments, kept, strict=True)
            if not same_info(old.struct_info, new.struct_info)
        ]
        if changed:
            raise ShapeError(
                f"{self.known.name} calls itself with arguments of other types: {', '.join(changed)}",
                span=call.span,
                hint="the arguments of a recursive function keep their types",
            )
        return Tuple((*kept, *self.results, const(False)))
