"""``gradient``: a function and its derivatives by reverse mode.

fn (%x) { multiply(%x, %x) }      →      fn (%x) -> (%x * %x, (2 * %x,)), in as many words
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, DifferentiationError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relay.analysis.well_formed import well_formed
from pullback.relay.duplicate import duplicate
from pullback.relay.expr import Call, Constant, Expr, Function, GlobalVar, Let, Var
from pullback.relay.gradient.first_order import first_order_gradient as _first_order
from pullback.relay.gradient.generic import products_remembered
from pullback.relay.gradient.higher_order import CHECKPOINTED, Reversal, higher_order_gradient
from pullback.relay.gradient.rules import CHECKPOINT, refuse_what_has_no_gradient
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.op.registry import Op
from pullback.relay.transform.to_anf import to_anf
from pullback.relay.visitor import ExprMutator, post_order

HIGHER_ORDER, FIRST_ORDER = "higher_order", "first_order"
_NO_FUNCTION = {"Primitive", "Compiler"}  # attributes of functions that count as one operator


def gradient(expr: Any, mod: IRModule | None = None, mode: str = HIGHER_ORDER) -> Function:
    """The function that returns what ``expr`` does, and its adjoints: ``(result, (adjoint of each parameter, …))``.

    ``expr`` is a function, or the ``GlobalVar`` of one of ``mod``, of tensors and tuples of them. The adjoint of its
    result is ones; of a tuple, that of the first field is. An adjoint has its parameter's type: zeros where this holds
    no floats.

    ``mode="higher_order"`` takes the whole language and gives functions and references; what it calls of ``mod`` is
    differentiated too, and added to ``mod`` under new names, such as ``f_grad``. ``PartialEvaluate`` and
    ``DeadCodeElimination`` make straight code of the result where there is no recursion. ``mode="first_order"`` takes
    dataflow and gives dataflow.

    Types are inferred first; in the result they are not.

    >>> from pullback import relay
    >>> x = relay.var("x", shape=(3,))
    >>> df = relay.transform.gradient(relay.Function([x], relay.log(x)))

    Checks: raises DifferentiationError, listing all operators without a gradient, and naming the first construct that
    first-order mode cannot take; ArgumentError for another mode.
    """
    if mode not in (HIGHER_ORDER, FIRST_ORDER):
        known = (HIGHER_ORDER, FIRST_ORDER)
        raise ArgumentError(f"unknown mode {mode!r}{suggestion(mode, known)}", hint=f"there are {' and '.join(known)}")
    function = _function(expr, mod)
    with products_remembered():
        return _gradient(function, mod) if mode == HIGHER_ORDER else _first_order_of(function, mod)


def first_order_gradient(expr: Any, mod: IRModule | None = None) -> Function:
    """``gradient(expr, mod, mode="first_order")``."""
    return gradient(expr, mod, FIRST_ORDER)


def _function(expr: Any, mod: IRModule | None) -> Function:
    if isinstance(expr, GlobalVar):
        if mod is None or expr.name not in mod:
            hint = "give gradient the module that defines it: gradient(expr, mod=module)"
            raise DifferentiationError(f"the function {expr.name} is not known", span=expr.span, hint=hint)
        expr = mod[expr.name]
    if not isinstance(expr, Function):
        hint = "make it a function of what it is differentiated by: relay.Function([x], expr)"
        raise DifferentiationError(f"only functions have gradients, not {type(expr).__name__}", hint=hint)
    if expr.type_params:
        hint = "call it in a function of tensors, and take the gradient of that"
        raise DifferentiationError("a polymorphic function has no gradient of its own", span=expr.span, hint=hint)
    return expr


@deep
def _first_order_of(function: Function, mod: IRModule | None) -> Function:
    inferred = infer_expr(function, mod)
    refuse_what_has_no_gradient(node for node in post_order(inferred) if isinstance(node, Call))
    return _first_order(inferred)


def _gradient(function: Function, mod: IRModule | None) -> Function:
    given = IRModule() if mod is None else mod
    result, reversal = _reversed(function, given)
    for name, added in reversal.functions.items():
        given[name] = added
    for data in reversal.types.definitions.values():
        given[data.header] = data
    return result


@deep
def _reversed(function: Function, mod: IRModule) -> tuple[Function, Reversal]:
    """The gradient, and what it needs in the module: under names that are free there, or stand for just that."""
    work, name = _prepared(function, mod)
    refuse_what_has_no_gradient(n for f in work.functions.values() for n in post_order(f) if isinstance(n, Call))
    taken: set[str] = set()
    while True:
        result, reversal = higher_order_gradient(work[name], work, taken)
        conflicts = set(_conflicts(reversal, mod))
        if not conflicts:
            return result, reversal
        taken |= conflicts


def _conflicts(reversal: Reversal, mod: IRModule) -> Iterator[str]:
    """The names that something else has in the module."""
    for name, function in reversal.functions.items():
        if name in mod and not structural_equal(mod[name], function):
            yield name
    known = {name.name: data for name, data in mod.type_definitions.items()}
    for data in reversal.types.definitions.values():
        name = data.header.name
        if name in known and not structural_equal(known[name], data):
            yield name


def _prepared(function: Function, mod: IRModule) -> tuple[IRModule, str]:
    """A module of the function and of those that it calls, in A-normal form and inferred; the function's name in it."""
    work, name = IRModule(None, None, mod.type_definitions), mod.unique_name("main")
    pending = [(name, function)]
    while pending:
        current, body = pending.pop()
        work[current] = _normal(body)
        for node in post_order(body):
            if isinstance(node, GlobalVar) and node.name not in work and node.name in mod:
                work[node.name] = mod[node.name]
                pending.append((node.name, mod[node.name]))
    return infer_module(work), name


def _normal(function: Function) -> Function:
    """The function with variables of its own, checkpoints as functions, in A-normal form."""
    if not well_formed(function):
        function = duplicate(function)
    return _Constants().visit(to_anf(_Checkpoints().visit(function)))


class _Constants(ExprMutator):
    """Constants in the places of the variables that are bound to them: operators look at them."""

    def visit_let(self, let: Let) -> Expr:
        lets: list[Let] = []
        expr: Expr = let
        while isinstance(expr, Let):
            if isinstance(expr.value, Constant):
                self.memo_map[expr.variable] = expr.value
            else:
                lets.append(expr)
            expr = expr.body
        values = [(self.visit(e.variable), self.visit(e.value), e.span) for e in lets]
        body = self.visit(expr)
        for variable, value, span in reversed(values):
            body = Let(variable, value, body, span=span)
        return body


class _Checkpoints(ExprMutator):
    """``checkpoint(e)`` becomes a call of a function of ``e``, which stays whole where all else gets names."""

    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        assert isinstance(new, Call)
        if not isinstance(new.op, Op) or new.op.name != CHECKPOINT or isinstance(new.args[0], (Var, Constant)):
            return new
        inside = Function((), new.args[0], None, (), {CHECKPOINTED: True}, span=call.span)
        return Call(inside, (), span=call.span)

    def visit_function(self, function: Function) -> Expr:
        new = super().visit_function(function)
        assert isinstance(new, Function)
        if not _NO_FUNCTION & set(new.attrs):
            return new
        return new.replace(attrs={k: v for k, v in new.attrs.items() if k not in _NO_FUNCTION})
