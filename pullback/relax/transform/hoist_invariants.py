"""HoistInvariants: what is the same in all steps of a loop is computed once, before it.

    def body(i, t, w):                                  v = R.exp(w)
        v = R.exp(w)                          →         def body(i, t, v):
        return ((R.matmul(t, v),), ())                      return ((R.matmul(t, v),), ())

Left in the loop is what costs nothing there, as it only moves or repeats elements, and what would grow: a result larger
than all that it is made of stays where it is read. So does what may fail, or draws random numbers, since the loop may
take no step, and branches and loops, which may not end. Run CanonicalizeBindings first, and SimplifyLoops after it: the
loop still takes the invariants that it no longer reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.control import LOOP
from pullback.relax.expr import Binding, Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import lacks_state
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.compose import has_te, is_free, is_view, looks_at_values
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.simplify_loops import Loop
from pullback.tir.expr import nbytes

_SMALL = 4096  # bytes: what makes no more of less may do so


@dataclass(frozen=True)
class HoistInvariants(FunctionPass):
    """Compute once, before a loop, what is the same in all of its steps: in functions whose symbolic sizes are bound.

    Checks: the bodies' results are explicit tuples, as CanonicalizeBindings leaves them. What may fail, draws random
    numbers, only moves elements, or is larger than all that it is made of stays in the loop.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        if not any(isinstance(b.value, Call) and b.value.op is LOOP for b in function.bindings):
            return function
        return _Hoist().function(function)


class _Hoist(ExprMutator):
    def rewrite_call(self, call: Call) -> Expr:
        old = Loop.of(call) if call.op is LOOP else None
        if old is None:
            return call
        for name in ("body", "condition"):
            function = old.call.attrs[name]
            if function is not None:
                old = self.hoisted(old, name, function)
        return old.call

    def hoisted(self, old: Loop, name: str, function: Function) -> Loop:
        """The loop without what is computed of invariants in one of its functions."""
        of_body = list(old.call.attrs["body"].params[-len(old.invariants) :]) if old.invariants else []
        params = list(function.params[-len(of_body) :]) if of_body else []
        wanted, outside = _invariant(function, params)
        if not wanted:
            return old
        mutator = ExprMutator()
        mutator.builder = self.builder
        mutator.env = dict(zip(params, old.given(3), strict=True))
        for binding in outside:
            mutator.env[binding.var] = self.builder.emit(mutator.expr(binding.value), binding.var.name)
        values = [mutator.env[v] for v in wanted]
        return with_invariants(old, name, {b.var for b in outside}, wanted, values)


def with_invariants(old: Loop, name: str, gone: set[Var], wanted: Sequence[Var], values: Sequence[Expr]) -> Loop:
    """The loop with further invariants, in the place of what one of its functions computed for ``gone`` variables."""
    attrs = dict(old.call.attrs)
    for other in ("body", "condition"):
        function = attrs[other]
        if function is None:
            continue
        mine = other == name
        fresh = [Var(v.name, v.struct_info, span=v.span) for v in wanted]
        mutator = _Without(gone if mine else set())
        mutator.builder.begin([p.name for p in (*function.params, *fresh)])
        mutator.env = {p: p for p in function.params}
        if mine:
            mutator.env |= dict(zip(wanted, fresh, strict=True))
        with mutator.builder.dataflow():
            for binding in function.bindings:
                mutator.rewrite_binding(binding)
            result = _promoted(mutator, mutator.expr(function.body.body))
        body = mutator.builder.finish(result)
        inner = Function((*function.params, *fresh), body, None, function.attrs, span=function.span)
        attrs[other] = remove_dead_bindings(inner)  # what only the hoisted values were computed from
    args = (*old.call.args[:3], Tuple((*old.given(3), *values)))
    new = Loop.of(Call(old.call.op, args, attrs, info=old.call.info, span=old.call.span))
    assert new is not None
    return new


class _Without(ExprMutator):
    """Leaves out the bindings of some variables."""

    def __init__(self, gone: set[Var]) -> None:
        super().__init__()
        self.gone = gone

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var not in self.gone:
            super().rewrite_binding(binding)


def _promoted(mutator: ExprMutator, expr: Expr) -> Expr:
    """A result, of variables that may leave the block."""
    if isinstance(expr, Tuple):
        return Tuple(tuple(_promoted(mutator, f) for f in expr.fields))
    return mutator.builder.promote(expr) if isinstance(expr, Var) else expr


def _invariant(function: Function, params: Sequence[Var]) -> tuple[list[Var], list[Binding]]:
    """The variables that become invariants, and what has to be computed for that."""
    known = set(params)
    candidates: dict[Var, Binding] = {}
    for binding in function.bindings:
        read = set(used_vars(binding.value))
        if read and read <= known | candidates.keys() and _may_leave(binding.value):
            candidates[binding.var] = binding
    worth: set[Var] = set()
    for var, binding in reversed(candidates.items()):
        value = binding.value
        is_item = isinstance(value, TupleGetItem)
        if var in worth or is_item or not (is_view(value) or is_free(value)):
            worth.add(var)
            worth.update(v for v in used_vars(value) if v in candidates)
    outside = [b for v, b in candidates.items() if v in worth]
    inside = [b for b in function.bindings if b.var not in worth]
    read = {v for b in inside for v in used_vars(b.value)} | set(used_vars(function.body.body))
    wanted = [b.var for b in outside if b.var in read]
    if any(not isinstance(v.struct_info, TensorStructInfo) for v in wanted):
        return [], []
    return wanted, outside if wanted else []


def _may_leave(value: Any) -> bool:
    """Whether the value may be computed before the loop, and is no larger than what it is made of."""
    if isinstance(value, TupleGetItem):
        return True
    if not has_te(value) or lacks_state(value) or looks_at_values(value):
        return False
    assert isinstance(value, Call) and isinstance(value.op, Op)
    given = sum(_bytes(a) for a in value.args)
    return _bytes(value) <= max(_SMALL, given)


def _bytes(expr: Any) -> int:
    if isinstance(expr, (Tuple, Constant)):
        return sum(map(_bytes, expr.fields)) if isinstance(expr, Tuple) else expr.data.nbytes
    info = expr.struct_info
    infos = getattr(info, "fields", (info,))
    return sum(math.prod(i.shape) * nbytes(i.dtype) for i in infos)
