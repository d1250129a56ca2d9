"""Functions that call themselves in tail position only, as loops over their arguments.

    def f(x): return f(x * 2) if x < 9 else x    →    while not done: x, y, done = (x * 2, 0, False) or (x, x, True)

A body in tail position gives what the next step of the loop needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pullback.ir.module import GlobalVar
from pullback.ir.op import Op
from pullback.relax.control import STEP, branch, loop
from pullback.relax.expr import Call, Expr, Function, If, SeqExpr, Tuple, TupleGetItem, Var, const
from pullback.relax.matching import bind_sizes
from pullback.relax.struct_info import as_tensor, flat_infos
from pullback.relax.transform.closed_form import (
    Known,
    closed,
    items_of,
    leaves_of,
    name_of,
    nested_value,
    scalar_function,
    sizes_of,
)
from pullback.relax.transform.recursive_calls import endless, handed_on

if TYPE_CHECKING:
    from pullback.relax.transform.inline_functions import Inliner


def tail_loop(inliner: Inliner, known: Known, arguments: Sequence[Any], call: Any) -> Expr:
    """What the function gives for the arguments."""
    builder = inliner.builder
    ret = bind_sizes(known.function.ret_struct_info, sizes_of(known, arguments))
    is_value = [not isinstance(a, Known) for a in arguments]
    begin = Tuple(tuple(a for a, kept in zip(arguments, is_value, strict=True) if kept))
    zeros = [Op.get("zeros")(info.shape, info.dtype) for info in map(as_tensor, flat_infos(ret))]
    flat = [*leaves_of(begin), *zeros, const(False)]
    first = len(flat) - 1 - len(zeros)

    def variables() -> list[Var]:
        return [Var("step", STEP), *(Var(name_of(v), v.struct_info) for v in flat)]

    asked = variables()
    ask = inliner.region(asked, lambda: Op.get("logical_not")(asked[-1]))
    given = variables()

    def emit() -> tuple[Expr, ...]:
        values = iter(nested_value(begin.struct_info, given[1 : first + 1], builder).fields)
        now = [next(values) if kept else a for a, kept in zip(arguments, is_value, strict=True)]
        tail = Tail(known, arguments, given[1 : first + 1], given[first + 1 : -1])
        found = tail.of(inliner.entered(known, now), known.function.body)
        if not tail.ends:
            raise endless(known, call)
        return found, Tuple(())

    body = inliner.region(given, emit)
    (body, ask), invariants = closed([body, scalar_function(ask)], builder)
    result = loop(None, flat, (), invariants, body, ask, known.function.attrs.get("max_steps"))
    whole = builder.emit(result, "looped")
    kept = list(items_of(builder.emit(TupleGetItem(whole, 0), "carries")))
    return nested_value(ret, kept[first:-1], builder)


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
        bindings = list(body.bindings)
        before, last = bindings[:-1], bindings[-1] if bindings else None
        is_last = last is not None and isinstance(body.body, Var) and body.body is last.var
        value = last.value if last is not None and is_last else None
        if not isinstance(value, (Call, If)):
            return self.end(inliner.body(body))
        if isinstance(value, If):
            self.emit(inliner, before)
            condition = inliner.expr(value.condition)
            bodies = [self.region(inliner, b) for b in (value.then, value.otherwise)]
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
        if inliner.recursion_of(callee) or not inliner.self_calls.reaches(callee, self.known.function):
            return self.end(inliner.call(callee, arguments, value))
        return self.of(inliner.entered(callee, arguments), callee.function.body)

    def region(self, inliner: Inliner, body: SeqExpr) -> Function:
        return inliner.region([], lambda: self.of(inliner.inside(), body))

    def emit(self, inliner: Inliner, bindings: Sequence[Any]) -> None:
        for binding in bindings:
            inliner.rewrite_binding(binding)

    def end(self, result: Expr) -> Tuple:
        self.ends.append(result)
        return Tuple((*self.arguments, *leaves_of(result), const(True)))

    def next(self, arguments: Sequence[Any], call: Call) -> Tuple:
        infos = [a.struct_info for a in self.arguments]
        kept = handed_on(self.known, self.given, infos, arguments, call)
        return Tuple((*kept, *self.results, const(False)))
