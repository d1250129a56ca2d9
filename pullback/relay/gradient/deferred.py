"""Gradients of calls whose sizes are only known when the program runs: operators that are lowered when they are.

    sort(x), x of unknown sizes   →   gradient.sort(x, y, dy, axis=-1, is_ascend=1, inputs=1).0

``gradient.NAME`` takes the arguments of a call of NAME, ``inputs`` of them, then the tensors of its result, then their
adjoints. It gives a tuple of the arguments' adjoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import relax
from pullback.ir.op import Op as GraphOp
from pullback.ir.op import Signature
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.relax.transform.vjp import vjp
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Expr
from pullback.relay.gradient.kernels import with_operators
from pullback.relay.op.meaning import meaning, type_of
from pullback.relay.op.registry import Op
from pullback.relay.ty import TupleType, Type

PREFIX = "gradient."


def gradient_operator(op: Op) -> Op:
    """The operator ``gradient.NAME``."""
    found = Op.registry.get(PREFIX + op.name)
    if found is None:
        count = _count_of_inputs(op)
        signature = Signature(("args",), frozenset(), True, {**op.signature.attrs, count: 1})

        def lower(*args: Any, **attrs: Any) -> Any:
            inputs = attrs.pop(count)
            return _adjoints(op, [_whole(a) for a in args[:inputs]], args[inputs:], attrs)

        def relation(types: list[Type], attrs: Attrs) -> Type:
            return TupleType(tuple(types[: attrs[count]]))

        doc = f"The adjoints of the arguments of {op.name}."
        found = Op.registry[PREFIX + op.name] = Op(
            PREFIX + op.name, signature, op.infer, lower=lower, relation=relation, doc=doc
        )
    return found


def _count_of_inputs(op: Op) -> str:
    """The name of the attribute that says how many arguments a call of ``op`` has."""
    name = "inputs"
    while name in op.signature.attrs:
        name += "_"
    return name


def deferred(call: Call, rest: Sequence[Expr]) -> Call:
    """The call of the gradient's operator for that of an operator; ``rest``: tensors of the result, then adjoints."""
    attrs = Attrs({**call.attrs, _count_of_inputs(call.op): len(call.args)})
    return Call(gradient_operator(call.op), (*call.args, *rest), attrs)


def _whole(argument: Any) -> relax.Expr:
    return relax.Tuple(tuple(argument)) if isinstance(argument, list) else argument


def _adjoints(op: Op, inputs: Sequence[relax.Expr], given: Sequence[relax.Expr], attrs: dict[str, Any]) -> Any:
    results, grads = given[: len(given) // 2], given[len(given) // 2 :]
    product = vjp(meaning(op, [type_of(x.struct_info) for x in inputs], Attrs(attrs)), "main")
    function = with_operators(product.function, product.module.functions)
    leaves = iter(_inlined(function, [*inputs, *results, *(grads[k] for k in product.seeded)]).fields)
    adjoints = {k: _like(inputs[k].struct_info, leaves) for k in product.required}
    return tuple(adjoints[k] if k in adjoints else _zeros(x) for k, x in enumerate(inputs))


def _like(info: Any, leaves: Any) -> relax.Expr:
    """The value of the type that has these tensors."""
    if isinstance(info, TupleStructInfo):
        return relax.Tuple(tuple(_like(i, leaves) for i in info.fields))
    return next(leaves)


def _zeros(value: relax.Expr) -> relax.Expr:
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        return relax.Tuple(tuple(_zeros(_field(value, k)) for k in range(len(info.fields))))
    assert isinstance(info, TensorStructInfo)
    return ops.zeros(info.shape, info.dtype)


def _inlined(function: relax.Function, arguments: Sequence[relax.Expr]) -> Any:
    """What a function of straight code gives, as an expression of its arguments."""
    values: dict[Any, relax.Expr] = dict(zip(function.params, arguments, strict=True))

    def expr(value: Any) -> Any:
        if isinstance(value, relax.Var):
            return values[value]
        if isinstance(value, relax.Tuple):
            return relax.Tuple(tuple(map(expr, value.fields)))
        if isinstance(value, relax.TupleGetItem):
            whole = expr(value.tuple_value)
            return (
                whole.fields[value.index] if isinstance(whole, relax.Tuple) else relax.TupleGetItem(whole, value.index)
            )
        if isinstance(value, relax.Call) and isinstance(value.op, GraphOp):
            return relax.Call(value.op, tuple(map(expr, value.args)), value.attrs)
        return value

    for binding in function.bindings:
        values[binding.var] = expr(binding.value)
    return expr(function.body.body)


def _field(whole: Any, index: int) -> relax.Expr:
    return whole.fields[index] if isinstance(whole, relax.Tuple) else relax.TupleGetItem(whole, index)
