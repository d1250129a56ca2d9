"""Reverse mode over a dataflow graph: the result is one, too, without functions and references.

    %0 = sin(%x)         →      %1 = ones_like(%0); %2 = cos(%x); (%0, (multiply(%1, %2),))

Adjoints are written beside the forward computation, whose nodes they share: nothing of it is there twice.
"""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.ir.node import span_scope
from pullback.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, call_op, span_of
from pullback.relay.gradient.generic import field, zeros
from pullback.relay.gradient.result import gradient_type
from pullback.relay.gradient.rules import adjoints_of, has_floats, moves
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType, TupleType, Type
from pullback.relay.visitor import post_order

Adjoint = Any  # mirrors the value: an expression for a tensor, a list for a tuple, None for zeros


def first_order_gradient(function: Function) -> Function:
    """The gradient of a function, in which types are inferred.

    Raises DifferentiationError naming the first construct that is neither a call of an operator nor a tuple.
    """
    nodes = list(post_order(function.body))
    for node in nodes:
        _refuse_what_is_no_dataflow(node)
    _refuse_other_variables(function, nodes)
    sweep = _Sweep()
    sweep.begin(function.body)
    for node in reversed(nodes):
        sweep.propagate(node)
    adjoints = Tuple(tuple(sweep.whole(p, sweep.adjoints.get(p), p.checked_type) for p in function.params))
    return Function(function.params, Tuple((function.body, adjoints)), gradient_type(function))


def _refuse_what_is_no_dataflow(node: Any) -> None:
    if isinstance(node, (Var, Constant, Op, Tuple, TupleGetItem)):
        return
    if isinstance(node, Call) and isinstance(node.op, Op):
        return
    what = "a call of what is no operator" if isinstance(node, Call) else type(node).__name__
    hint = (
        'mode="higher_order" takes the whole language; ToGraphNormalForm and Inline make dataflow of Let and functions'
    )
    raise DifferentiationError(f"first-order gradients take dataflow only, not {what}", span=span_of(node), hint=hint)


def _refuse_other_variables(function: Function, nodes: list[Any]) -> None:
    for node in nodes:
        if isinstance(node, Var) and node not in function.params:
            hint = "make it a parameter of the function"
            raise DifferentiationError(f"{node.name} is bound nowhere", span=node.span, hint=hint)


class _Sweep:
    def __init__(self) -> None:
        self.adjoints: dict[Any, Adjoint] = {}

    def begin(self, result: Any) -> None:
        """The adjoint of a tensor is ones, that of a tuple is that of its first field."""
        self.accumulate(result, _seed(result, result.checked_type))

    def propagate(self, node: Any) -> None:
        """Carry the adjoint of a node to what is right inside it."""
        adjoint = self.adjoints.get(node)
        if adjoint is None or isinstance(node, (Var, Constant, Op)):
            return
        with span_scope(span_of(node)):
            if isinstance(node, Tuple):
                for part, of_part in zip(node.fields, adjoint, strict=True):
                    self.accumulate(part, of_part)
            elif isinstance(node, TupleGetItem):
                size = len(node.tuple_value.checked_as(TupleType).fields)
                self.accumulate(node.tuple_value, [adjoint if k == node.index else None for k in range(size)])
            elif moves(node):
                grad = self.whole(node, adjoint, node.checked_type)
                for arg, of_arg in zip(node.args, adjoints_of(node, grad), strict=True):
                    if has_floats(arg.checked_type):
                        self.accumulate(arg, _parts(of_arg, arg.checked_type))

    def accumulate(self, node: Any, adjoint: Adjoint) -> None:
        """Add to the adjoint of a node."""
        self.adjoints[node] = _sum(self.adjoints.get(node), adjoint)

    def whole(self, value: Expr, adjoint: Adjoint, type_: Type) -> Expr:
        """An adjoint as an expression, with zeros for what is missing."""
        if adjoint is None:
            return zeros(value, type_)
        if isinstance(type_, TupleType):
            parts = [self.whole(field(value, k), adjoint[k], t) for k, t in enumerate(type_.fields)]
            return Tuple(tuple(parts))
        return adjoint


def _seed(value: Expr, type_: Type) -> Adjoint:
    if isinstance(type_, TupleType) and type_.fields:
        return [_seed(field(value, 0), type_.fields[0]), *[None] * (len(type_.fields) - 1)]
    if not isinstance(type_, TensorType):
        hint = "the function returns a tensor, or a tuple whose first field is one"
        raise DifferentiationError(f"a result of type {type(type_).__name__} has no gradient", hint=hint)
    return call_op("ones_like", value)


def _parts(adjoint: Expr, type_: Type) -> Adjoint:
    """An expression as an adjoint; what are no floats has none."""
    if isinstance(type_, TupleType):
        return [_parts(field(adjoint, k), t) for k, t in enumerate(type_.fields)]
    return adjoint if has_floats(type_) else None


def _sum(known: Adjoint, more: Adjoint) -> Adjoint:
    if known is None or more is None:
        return known if more is None else more
    if isinstance(more, list):
        return [_sum(k, m) for k, m in zip(known, more, strict=True)]
    return call_op("add", known, more)
