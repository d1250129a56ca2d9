"""Arithmetic of sizes: of nodes that compute with them, and of the expressions by which PyTorch writes them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.tir.expr import PrimExpr, maximum, minimum
from pullback.tir.expr import Var as Size

__all__ = ["PYTHON", "SizeNames", "add_functions_of", "number"]


def _whole(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, which sizes that are not known yet do not have."""

    def computed(*values: Any) -> Any:
        if any(isinstance(value, PrimExpr) for value in values):
            raise ArgumentError(
                f"{name} of a size that is not known cannot be converted",
                hint="from_torch(…, dynamic_shapes=…) says which sizes are not fixed; without this one it works",
            )
        return function(*values)

    return computed


def _ceil(value: Any) -> Any:
    return value if isinstance(value, PrimExpr) and value.dtype == "int64" else _whole("ceil", math.ceil)(value)


def _floor(value: Any) -> Any:
    return value if isinstance(value, PrimExpr) and value.dtype == "int64" else _whole("floor", math.floor)(value)


PYTHON: dict[Any, Callable[..., Any]] = {  # Python's functions, of sizes, and of several results one
    f: f
    for f in (
        operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg,
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_,
    )
}  # fmt: skip
PYTHON |= {
    operator.truediv: _whole("a quotient", operator.truediv),
    operator.pow: _whole("a power", operator.pow),
    math.ceil: _ceil,
    math.floor: _floor,
    math.trunc: _floor,
    round: _whole("round", round),
    min: lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else minimum(a, b),
    max: lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else maximum(a, b),
}


def add_functions_of(torch: Any) -> None:
    """PyTorch's own functions of sizes, once it is imported."""
    PYTHON.update(
        {
            torch.sym_max: PYTHON[max],
            torch.sym_min: PYTHON[min],
            torch.sym_int: _floor,
            torch.sym_float: lambda value: value if isinstance(value, PrimExpr) else float(value),
            torch.sym_not: operator.not_,
            torch.sym_sum: lambda values: functools.reduce(operator.add, values),
        }
    )


def number(size: Any) -> int | None:
    """A size of a tensor in PyTorch as a number, or None for one that is free."""
    if isinstance(size, int):
        return size
    found = size.node.maybe_as_int()
    return None if found is None else int(found)


class SizeNames:
    """The symbols of sizes, by those of PyTorch: the first axis of inputs is ``n``, others are ``t``, ``t1`` and so
    on, in the order in which they come."""

    def __init__(self) -> None:
        self._known: dict[str, Size] = {}

    def size(self, size: Any, axis: int) -> int | PrimExpr:
        """A size of a tensor's type in PyTorch."""
        known = number(size)
        return self.of(size.node.expr, axis) if known is None else known

    def known(self, size: Any, otherwise: Any) -> Any:
        """A size of a result, if all of its symbols are those of inputs."""
        if number(size) is None and not all(str(symbol) in self._known for symbol in size.node.expr.free_symbols):
            return otherwise
        try:
            return self.size(size, 1)
        except ArgumentError:
            return otherwise

    def of(self, expr: Any, axis: int = 1) -> Any:
        """A size that PyTorch writes as an expression."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(str(expr), axis)
        parts = [self.of(part, axis) for part in expr.args]
        kind = type(expr).__name__
        if kind in ("Add", "Mul"):
            return functools.reduce(operator.add if kind == "Add" else operator.mul, parts)
        if kind in ("FloorDiv", "CleanDiv"):
            return parts[0] // parts[1]
        if kind in ("Mod", "PythonMod"):
            return parts[0] % parts[1]
        if kind in ("Max", "Min"):
            return functools.reduce(PYTHON[max if kind == "Max" else min], parts)
        raise ArgumentError(f"a size that is {expr} cannot be converted", hint="dynamic_shapes says what is fixed")

    def _symbol(self, name: str, axis: int) -> Size:
        if name not in self._known:
            base = "n" if axis == 0 else "t"
            taken = {size.name for size in self._known.values()}
            free = base if base not in taken else next(f"{base}{k}" for k in range(1, 99) if f"{base}{k}" not in taken)
            self._known[name] = Size(free, "int64")
        return self._known[name]
