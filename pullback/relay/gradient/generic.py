"""The gradient of an operator without a rule: that of what it means in the graph IR, raised to relay.

    nn.leaky_relu(x, alpha=0.1)   →   where(greater(x, 0f), grad, multiply(grad, 0.1f))

What relay has no operator for is one under its full name in the graph IR, ``relax.grad.conv2d_weight``. All of these
have gradients in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pullback.ir.errors import DifferentiationError, UserError
from pullback.relax.transform.vjp import VJP, vjp
from pullback.relay.expr import Call, Expr, Tuple, TupleGetItem, call_op, span_of
from pullback.relay.gradient.deferred import deferred
from pullback.relay.gradient.kernels import with_operators
from pullback.relay.op.meaning import is_known, meaning
from pullback.relay.raised import raised_body
from pullback.relay.ty import TensorType, TupleType, Type


def generic_gradient(orig: Call, grad: Expr) -> list[Any]:
    """The adjoints of a call's arguments; their types, and the result's, have to be known.

    Raises DifferentiationError where the operator has no meaning in the graph IR, or this no gradient that relay's
    operators can say.
    """
    types = [a.checked_type for a in orig.args]
    from pullback.relay.frontend.names import NAMES  # with the importers, which nobody else needs here

    results, grads = _leaves(orig, orig.checked_type), _leaves(grad, orig.checked_type)
    if not all(map(is_known, types)):
        _require_meaning(orig)
        adjoints = deferred(orig, [*results, *grads])
        return [TupleGetItem(adjoints, k) for k in range(len(orig.args))]
    product = _product(orig, types)
    arguments = [*orig.args, *results, *(grads[k] for k in product.seeded)]
    try:
        found = raised_body(with_operators(product.function, product.module.functions), arguments, NAMES)
    except UserError as error:
        raise _refusal(orig, error) from None
    assert isinstance(found, Tuple)
    leaves = iter(found.fields)
    required = {k: _whole(types[k], leaves) for k in product.required}
    return [required[k] if k in required else zeros(arg, types[k]) for k, arg in enumerate(orig.args)]


def _require_meaning(orig: Call) -> None:
    if orig.op.lower is None:
        message = f"operator {orig.op.name} has no meaning in the graph IR"
        if orig.op.static is not None:
            message += " where its sizes are no constants"
        raise DifferentiationError(message, span=span_of(orig))


_Key = tuple[Any, ...]  # an operator, the types of its arguments and its attributes
_products: ContextVar[dict[_Key, VJP] | None] = ContextVar("products", default=None)


@contextmanager
def products_remembered() -> Iterator[None]:
    """While this lasts, calls of one operator, of the same types and attributes, are differentiated once."""
    token = _products.set({})
    try:
        yield
    finally:
        _products.reset(token)


def _product(orig: Call, types: Sequence[Type]) -> VJP:
    _require_meaning(orig)
    known, key = _products.get(), (orig.op, *types, *orig.attrs.items())
    if known is not None and key in known:
        return known[key]
    try:
        product = vjp(meaning(orig.op, types, orig.attrs), "main")
    except UserError as error:
        raise _refusal(orig, error) from None
    if known is not None:
        known[key] = product
    return product


def _refusal(orig: Call, error: UserError) -> DifferentiationError:
    return DifferentiationError(error.message, span=span_of(orig), hint=error.hint)


def _leaves(value: Expr, type_: Type) -> list[Expr]:
    """The tensors of a value, with those of tuples in it."""
    if not isinstance(type_, TupleType):
        return [value]
    return [leaf for k, t in enumerate(type_.fields) for leaf in _leaves(field(value, k), t)]


def _whole(type_: Type, leaves: Any) -> Expr:
    """The value of the type that has these tensors."""
    if isinstance(type_, TupleType):
        return Tuple(tuple(_whole(t, leaves) for t in type_.fields))
    return next(leaves)


def field(value: Expr, index: int) -> Expr:
    """A field of a tuple, the one that is written where the tuple is."""
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)


def zeros(value: Expr, type_: Type) -> Expr:
    """Zeros of a value's shapes and dtypes."""
    if isinstance(type_, TupleType):
        return Tuple(tuple(zeros(field(value, k), t) for k, t in enumerate(type_.fields)))
    assert isinstance(type_, TensorType)
    return call_op("zeros_like", value)
