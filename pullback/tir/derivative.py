"""Derivatives of scalar expressions, in reverse: what each variable and each element that is read contributes.

    e = x * exp(y), adjoint d        →        x: d * exp(y)        y: (d * x) * exp(y)

One walk over the expression from the root to the leaves; what is shared is visited once, with the sum of its adjoints
(Griewank & Walther, Evaluating Derivatives, ch. 3). What is no real number has no derivative: indices, conditions,
integers. Where two sides of ``min`` or ``max`` are equal, each takes half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pullback.ir.errors import DifferentiationError
from pullback.tir.expr import (
    Binary,
    BufferLoad,
    Call,
    Cast,
    PrimExpr,
    Select,
    Var,
    call,
    cast,
    const,
    is_float,
    select,
)

Rule = Callable[..., PrimExpr]


def contributions(expr: PrimExpr, adjoint: PrimExpr) -> list[tuple[BufferLoad | Var, PrimExpr]]:
    """The loads and variables of float type in ``expr`` with what they get of its adjoint. Raises DifferentiationError
    for what has no derivative, such as the bits of a number."""
    adjoints: dict[int, PrimExpr] = {id(expr): adjoint}
    found = []
    for node in reversed(_operands_first(expr)):
        d = adjoints.get(id(node))
        if d is None or not is_float(node.dtype):
            continue
        if isinstance(node, (BufferLoad, Var)):
            found.append((node, d))
            continue
        for operand, part in _parts(node, d):
            known = adjoints.get(id(operand))
            adjoints[id(operand)] = part if known is None else known + part
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


def _parts(node: PrimExpr, d: PrimExpr) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """Each operand of float type with its part of the adjoint ``d`` of the node."""
    if isinstance(node, Binary):
        if node.kind in _BINARY:
            yield from zip((node.a, node.b), _BINARY[node.kind](node.a, node.b, d), strict=True)
    elif isinstance(node, Select):
        zero = const(0, d.dtype)
        yield node.a, select(node.condition, d, zero)
        yield node.b, select(node.condition, zero, d)
    elif isinstance(node, Cast):
        if is_float(node.value.dtype):
            yield node.value, cast(node.value.dtype, d)
    elif isinstance(node, Call):
        yield from _of_call(node, d)


def _of_call(node: Call, d: PrimExpr) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    if node.name in _STEPS:
        return
    if node.name in _OF_ONE:
        (x,) = node.args
        yield x, d * _OF_ONE[node.name](x, node)
    elif node.name in _OF_SEVERAL:
        yield from zip(node.args, _OF_SEVERAL[node.name](*node.args, node, d), strict=True)
    else:
        raise DifferentiationError(f"the intrinsic {node.name} has no derivative", span=node.span)


def _extremum(is_less: bool) -> Rule:
    def rule(a: PrimExpr, b: PrimExpr, d: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        zero, half = const(0, d.dtype), d * 0.5
        first, second = (a < b, b < a) if is_less else (a > b, b > a)
        return select(first, d, select(second, zero, half)), select(second, d, select(first, zero, half))

    return rule  # type: ignore[return-value]


_BINARY: dict[str, Callable[[PrimExpr, PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr]]] = {
    "add": lambda a, b, d: (d, d),
    "sub": lambda a, b, d: (d, -d),
    "mul": lambda a, b, d: (d * b, d * a),
    "div": lambda a, b, d: (d / b, -(d * a / (b * b))),
    "min": _extremum(True),  # type: ignore[dict-item]
    "max": _extremum(False),  # type: ignore[dict-item]
    "floormod": lambda a, b, d: (d, -(d * call("floor", a / b))),
    "truncmod": lambda a, b, d: (d, -(d * call("trunc", a / b))),
}

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


def _pow(a: PrimExpr, b: PrimExpr, y: PrimExpr, d: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Where the exponent is 0 the power does not move with its base, and where the base is 0 not with its exponent."""
    zero = const(0, d.dtype)
    by_base = select(b.equal(0.0), zero, d * b * call("pow", a, b - 1.0))
    return by_base, select(a.equal(0.0), zero, d * y * call("log", a))


def _atan2(a: PrimExpr, b: PrimExpr, y: PrimExpr, d: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    square = a * a + b * b
    return d * b / square, -(d * a / square)


_OF_SEVERAL: dict[str, Callable[..., tuple[PrimExpr, ...]]] = {  # of the arguments, the result y and its adjoint
    "pow": _pow,
    "atan2": _atan2,
    "fma": lambda a, b, c, y, d: (d * b, d * a, d),
}
