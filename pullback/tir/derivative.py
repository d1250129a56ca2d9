"""Derivatives of scalar expressions, in reverse: what each variable and each element that is read contributes.

    e = x * exp(y), adjoint d        →        x: d * exp(y)        y: (d * x) * exp(y)

One walk over the expression from the root to the leaves; what is shared is visited once, with the sum of its adjoints
(Griewank & Walther, Evaluating Derivatives, ch. 3). What is no real number has no derivative: indices, conditions,
integers. Where two sides of ``min`` or ``max`` are equal, each takes half.

What ``select``, ``min`` and ``max`` do not take gets the adjoint 0, and that 0 stays one whatever it is multiplied by:
products of what may be such a zero are ``multiply_no_nan`` and ``xdivy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    PrimExpr,
    Select,
    Var,
    call,
    cast,
    const,
    is_float,
    select,
)

DENSE, THINNED, MASKED = range(3)


@dataclass(frozen=True)
class _Adjoint:
    """An adjoint in the rules' formulas. ``guarded``: it may be 0 because a value was not taken, and a product with
    what is infinite then is 0."""

    expr: PrimExpr
    guarded: bool

    def __mul__(self, factor: Any) -> _Adjoint:
        if self.guarded and not _is_finite(factor):
            return replace(self, expr=call("multiply_no_nan", factor, self.expr))
        return replace(self, expr=self.expr * factor)

    def __truediv__(self, divisor: PrimExpr) -> _Adjoint:
        return replace(self, expr=call("xdivy", self.expr, divisor) if self.guarded else self.expr / divisor)

    def __neg__(self) -> _Adjoint:
        return replace(self, expr=-self.expr)


def _is_finite(factor: Any) -> bool:
    """Whether a factor is a finite number, whose product with 0 is 0."""
    if isinstance(factor, FloatImm):
        factor = factor.value
    return isinstance(factor, (int, float)) and math.isfinite(factor)


def contributions(expr: PrimExpr, adjoint: PrimExpr, degree: int = DENSE) -> list[tuple[BufferLoad | Var, PrimExpr]]:
    """The loads and variables of float type in ``expr`` with what they get of its adjoint, which may hold structural
    zeros to a degree: ``THINNED`` guards quotients and intrinsics, ``MASKED`` products too. Raises DifferentiationError
    for what has no derivative, such as the bits of a number."""
    adjoints: dict[int, tuple[PrimExpr, int]] = {id(expr): (adjoint, degree)}
    found = []
    order = _operands_first(expr)
    leaves = _leaves(order)
    for node in reversed(order):
        known = adjoints.get(id(node))
        if known is None or not is_float(node.dtype):
            continue
        if isinstance(node, (BufferLoad, Var)):
            found.append((node, known[0]))
            continue
        for operand, part, own in _parts(node, *known):
            if own == DENSE and _product_of(node) and _is_apart(operand, node, leaves):
                own = THINNED
            before = adjoints.get(id(operand))
            adjoints[id(operand)] = (part, own) if before is None else (before[0] + part, min(before[1], own))
    return found


def _operands_first(expr: PrimExpr) -> list[PrimExpr]:
    """All nodes of float type that the value depends on smoothly, each once, after its operands."""
    order: dict[int, PrimExpr] = {}

    def visit(node: PrimExpr) -> None:
        if id(node) not in order and is_float(node.dtype):
            for operand in _operands(node):
                visit(operand)
            order[id(node)] = node

    visit(expr)
    return list(order.values())


def _operands(node: PrimExpr) -> tuple[PrimExpr, ...]:
    if isinstance(node, (Binary, Select)):
        return node.a, node.b
    if isinstance(node, Cast):
        return (node.value,)
    return node.args if isinstance(node, Call) else ()


def _parts(node: PrimExpr, d: PrimExpr, degree: int) -> Iterator[tuple[PrimExpr, PrimExpr, int]]:
    """Each operand of float type with its part of the adjoint ``d`` of the node, and the degree of that."""
    if isinstance(node, Select):
        zero = const(0, d.dtype)
        yield node.a, select(node.condition, d, zero), MASKED
        yield node.b, select(node.condition, zero, d), MASKED
    elif isinstance(node, Cast):
        if is_float(node.value.dtype):
            yield node.value, cast(node.value.dtype, d), degree
    elif isinstance(node, Binary) and node.kind in ("min", "max"):
        for operand, part in zip((node.a, node.b), _of_extremum(node, d), strict=True):
            yield operand, part, MASKED
    elif isinstance(node, (Binary, Call)):
        guarded = degree >= (MASKED if _product_of(node) else THINNED)
        for operand, adjoint in _of_operator(node, _Adjoint(d, guarded)):
            yield operand, adjoint.expr, degree


def _of_operator(node: Binary | Call, d: _Adjoint) -> Iterator[tuple[PrimExpr, _Adjoint]]:
    operands, name = _operands(node), node.kind if isinstance(node, Binary) else node.name
    rules = _BINARY if isinstance(node, Binary) else _OF_SEVERAL
    if name in rules:
        yield from zip(operands, rules[name](*operands, node, d), strict=True)
    elif name in _OF_ONE:
        (x,) = operands
        yield x, d * _OF_ONE[name](x, node)
    elif isinstance(node, Call) and name not in _STEPS:
        raise DifferentiationError(f"the intrinsic {name} has no derivative", span=node.span)


def _product_of(node: PrimExpr) -> tuple[PrimExpr, ...]:
    """The two factors of a product, such as contractions add up; of anything else none."""
    if isinstance(node, Binary) and node.kind == "mul":
        return node.a, node.b
    return node.args[:2] if isinstance(node, Call) and node.name == "fma" else ()


def _is_apart(operand: PrimExpr, product: PrimExpr, leaves: dict[int, frozenset[Buffer | Var]]) -> bool:
    """Whether an operand is a factor, and the other one reads nothing that it reads: where the other is 0, the product
    does not move with it at all."""
    a, b = _product_of(product)
    return operand in (a, b) and not leaves.get(id(a), frozenset()) & leaves.get(id(b), frozenset())


def _leaves(order: list[PrimExpr]) -> dict[int, frozenset[Buffer | Var]]:
    """What each expression moves with."""
    found: dict[int, frozenset[Buffer | Var]] = {}
    for node in order:
        if isinstance(node, (BufferLoad, Var)):
            found[id(node)] = frozenset([node.buffer if isinstance(node, BufferLoad) else node])
        else:
            found[id(node)] = frozenset().union(*(found.get(id(o), frozenset()) for o in _operands(node)))
    return found


def _of_extremum(node: Binary, d: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    a, b, zero, half = node.a, node.b, const(0, d.dtype), d * 0.5
    first, second = (a < b, b < a) if node.kind == "min" else (a > b, b > a)
    return select(first, d, select(second, zero, half)), select(second, d, select(first, zero, half))


_STEPS = ("floor", "ceil", "round", "trunc", "philox4x32")  # constant but for jumps, or no function of their arguments

_OF_ONE: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {  # of the argument x and the result y
    "abs": lambda x, y: select(x < 0, const(-1, x.dtype), select(x > 0, const(1, x.dtype), const(0, x.dtype))),
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "expm1": lambda x, y: y + 1.0,
    "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: 1.0 / (x * math.log(2)),
    "log10": lambda x, y: 1.0 / (x * math.log(10)),
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: y / x * -0.5,
    "sin": lambda x, y: call("cos", x),
    "cos": lambda x, y: -call("sin", x),
    "tan": lambda x, y: y * y + 1.0,
    "asin": lambda x, y: 1.0 / call("sqrt", 1.0 - x * x),
    "acos": lambda x, y: -1.0 / call("sqrt", 1.0 - x * x),
    "atan": lambda x, y: 1.0 / (x * x + 1.0),
    "sinh": lambda x, y: call("cosh", x),
    "cosh": lambda x, y: call("sinh", x),
    "tanh": lambda x, y: 1.0 - y * y,
    "asinh": lambda x, y: 1.0 / call("sqrt", x * x + 1.0),
    "acosh": lambda x, y: 1.0 / call("sqrt", x * x - 1.0),
    "atanh": lambda x, y: 1.0 / (1.0 - x * x),
    "erf": lambda x, y: call("exp", -(x * x)) * (2 / math.sqrt(math.pi)),
    "erfc": lambda x, y: call("exp", -(x * x)) * (-2 / math.sqrt(math.pi)),
}


def _pow(a: PrimExpr, b: PrimExpr, y: PrimExpr, d: _Adjoint) -> tuple[_Adjoint, _Adjoint]:
    """Where the exponent is 0 the power does not move with its base, and where the base is 0 not with its exponent."""
    zero = const(0, y.dtype)
    return (
        d * select(b.equal(0.0), zero, b * call("pow", a, b - 1.0)),
        d * select(a.equal(0.0), zero, y * call("log", a)),
    )


def _atan2(a: PrimExpr, b: PrimExpr, y: PrimExpr, d: _Adjoint) -> tuple[_Adjoint, _Adjoint]:
    square = a * a + b * b
    return d * b / square, -(d * a / square)


def _no_nan(d: _Adjoint) -> _Adjoint:
    """What the derivatives of a guarded product are: guarded, whatever its adjoint is."""
    return replace(d, guarded=True)


_Rules = dict[str, Callable[..., tuple[_Adjoint, ...]]]  # of the operands, the result y and its adjoint

_BINARY: _Rules = {
    "add": lambda a, b, y, d: (d, d),
    "sub": lambda a, b, y, d: (d, -d),
    "mul": lambda a, b, y, d: (d * b, d * a),
    "div": lambda a, b, y, d: (d / b, -(d * a / (b * b))),
    "floormod": lambda a, b, y, d: (d, -(d * call("floor", a / b))),
    "truncmod": lambda a, b, y, d: (d, -(d * call("trunc", a / b))),
}

_OF_SEVERAL: _Rules = {
    "pow": _pow,
    "atan2": _atan2,
    "fma": lambda a, b, c, y, d: (d * b, d * a, d),
    "multiply_no_nan": lambda a, b, y, d: (_no_nan(d) * b, _no_nan(d) * a),
    "xdivy": lambda a, b, y, d: (_no_nan(d) / b, -(_no_nan(d) * y / b)),
}
