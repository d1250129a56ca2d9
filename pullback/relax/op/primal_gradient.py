"""Gradient rules in the reference's form, ``rule(orig_var, orig_call, output_grad, ctx)``: from it, and to it.

Ours are functions of the adjoint, the result and the arguments, ``rule(dy, y, *arguments, **attributes)``. The other
form also gets the builder; what it emits stands in the adjoint function. Where a rule is only read, as in forward mode,
``ctx`` emits nothing: it gives the expressions as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Tuple, Var, as_relax
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import TupleStructInfo

Rule = Callable[..., Any]
_NAMES = ("orig_call", "call")


def is_primal(rule: Rule) -> bool:
    """Whether a rule is of the reference's form: of four parameters, the second of which is a call by its name or its
    annotation."""
    try:
        parameters = list(inspect.signature(rule).parameters.values())
    except (TypeError, ValueError):
        return False
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
    if len(parameters) != 4 or not plain:
        return False
    second = parameters[1]
    annotation = second.annotation if isinstance(second.annotation, str) else getattr(second.annotation, "__name__", "")
    return second.name in _NAMES or annotation.rpartition(".")[2] == "Call"


class Written(BlockBuilder):
    """The ``ctx`` of a rule that is only read: nothing is bound."""

    def emit(self, expr: Any, name: str | None = None) -> Any:
        return as_relax(expr)

    def normalize(self, expr: Any) -> Any:
        return as_relax(expr)


class PrimalRule:
    """A rule of the reference's form for an op, in ours. ``primal`` is the rule, which Gradient calls with its
    builder."""

    def __init__(self, op: Op, primal: Rule) -> None:
        self.op, self.primal = op, primal

    def __call__(self, dy: Any, y: Any, *args: Any, **attrs: Any) -> list[Any]:
        return self.adjoints(Written(), dy, y, Call(self.op, tuple(args), attrs))

    def adjoints(self, builder: BlockBuilder, dy: Any, y: Any, call: Call) -> list[Any]:
        """An adjoint for each argument, None where the rule says ``no_grad``."""
        given = self.primal(y, call, Tuple(tuple(dy)) if isinstance(dy, list) else dy, builder)
        found = list(given) if isinstance(given, (list, tuple, Tuple)) else None
        if found is None or len(found) != len(call.args):
            what = "something else" if found is None else f"{len(found)}"
            raise ArgumentError(
                f"the gradient of {self.op.short} must give {len(call.args)} adjoints, a list, it gives {what}",
                span=call.span,
                hint="an argument without one is said by R.grad.no_grad(orig_call.args[k])",
            )
        return [None if is_op(part, "grad.no_grad") else part for part in found]


def primal_gradient(op: Op) -> Rule | None:
    """The op's rule in the reference's form; None where it has none."""
    rule = op.gradient
    if rule is None or isinstance(rule, PrimalRule):
        return rule and rule.primal

    def primal(orig_var: Var, orig_call: Call, output_grad: Any, ctx: BlockBuilder) -> list[Any]:
        dy = output_grad
        if isinstance(orig_call.struct_info, TupleStructInfo):
            dy = [output_grad[k] for k in range(len(orig_call.struct_info.fields))]
        found: Sequence[Any] = rule(dy, orig_var, *orig_call.args, **orig_call.attrs)
        pairs = zip(found, orig_call.args, strict=True)
        return [Op.get("grad.no_grad")(arg) if part is None else part for part, arg in pairs]

    primal.__doc__ = f"The gradient of {op.short}: a list of adjoints of its arguments."
    return primal


Op.attributes["FPrimalGradient"] = primal_gradient
